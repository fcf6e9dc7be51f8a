// Exports enough names for hash buckets to hold several symbols; see elf_test.cc.
#define ONE(name, digit)  \
  int name##digit(void) { \
    return digit;         \
  }
#define FIVE(name) ONE(name, 0) ONE(name, 1) ONE(name, 2) ONE(name, 3) ONE(name, 4)
#define TEN(name) FIVE(name) ONE(name, 5) ONE(name, 6) ONE(name, 7) ONE(name, 8) ONE(name, 9)

TEN(sample_first_)
TEN(sample_second_)
TEN(a_much_longer_name_than_the_others_have_so_that_its_old_hash_wraps_around_)

int sample_variable = 42;
