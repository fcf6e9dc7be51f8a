// Exports enough names for hash buckets to hold several symbols; see elf_test.cc.
#define NUMBERED(prefix, digit) \
  int prefix##digit(void) {     \
    return digit;               \
  }
#define TEN(prefix)                                                               \
  NUMBERED(prefix, 0)                                                             \
  NUMBERED(prefix, 1)                                                             \
  NUMBERED(prefix, 2) NUMBERED(prefix, 3) NUMBERED(prefix, 4) NUMBERED(prefix, 5) \
      NUMBERED(prefix, 6) NUMBERED(prefix, 7) NUMBERED(prefix, 8) NUMBERED(prefix, 9)

TEN(sample_first_)
TEN(sample_second_)
TEN(a_much_longer_name_than_the_others_have_so_that_its_old_hash_wraps_around_)

int sample_variable = 42;
