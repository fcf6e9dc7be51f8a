// PTX; see image_size.h. This only looks for declarations of global variables, such as ".visible
// .global .align 4 .v2 .f32 name[16][3];", as the PTX ISA defines them.
#include <string.h>

#include <string_view>

#include "hooks/cuda/image_size.h"

namespace fracgpu::cuda {
namespace {

// Reads the words of a text, one after another.
class Variables {
 public:
  // False if this is the first word and PTX cannot begin with it.
  bool take(std::string_view word) {
    if (!begun_) {
      begun_ = true;
      return word == ".version";
    }
    if (word == ";" || word == "=" || word == "{") {
      end_declaration();
    } else if (word == ".extern") {
      elsewhere_ = true;
    } else if (word == ".global") {
      declaring_ = true;
    } else if (declaring_) {
      take_part(word);
    }
    last_is_align_ = word == ".align";
    last_is_bracket_ = word == "[";
    return true;
  }

  bool begun() const { return begun_; }
  uint64_t bytes() const { return sum_; }
  bool overflow() const { return overflow_; }

 private:
  // ".f32" or ".v2", or the number of elements.
  void take_part(std::string_view word) {
    if (last_is_align_) return;
    if (last_is_bracket_) {
      times(number(word));
    } else if (word.size() > 2 && word[0] == '.' && word[1] == 'v') {
      times(number(word.substr(2)));
    } else if (word.size() > 2 && word[0] == '.' && strchr("bsuf", word[1]) != nullptr) {
      times(number(word.substr(2)) / 8);
    }
  }

  void times(uint64_t factor) {
    if (factor != 0) overflow_ |= __builtin_mul_overflow(size_, factor, &size_);
  }

  void end_declaration() {
    if (declaring_ && !elsewhere_) overflow_ |= __builtin_add_overflow(sum_, size_, &sum_);
    declaring_ = elsewhere_ = false;
    size_ = 1;
  }

  // Decimal; 0 if the text does not begin with a digit.
  static uint64_t number(std::string_view digits) {
    uint64_t value = 0;
    for (const char digit : digits) {
      if (digit < '0' || digit > '9') break;
      if (__builtin_mul_overflow(value, 10u, &value)) return UINT64_MAX;
      value += static_cast<uint64_t>(digit - '0');
    }
    return value;
  }

  uint64_t sum_ = 0, size_ = 1;
  bool begun_ = false, declaring_ = false, elsewhere_ = false;
  bool last_is_align_ = false, last_is_bracket_ = false, overflow_ = false;
};

// Splits the text into words, across its pieces and without its comments.
class Words {
 public:
  explicit Words(Variables& variables) : variables_(variables) {}

  // False if the text is not PTX.
  bool take(char letter) {
    const char before = last_;
    last_ = letter;
    if (comment_ != 0) return skip(before, letter);
    if (before == '/' && (letter == '/' || letter == '*')) {
      comment_ = letter;
      last_ = '\0';
      length_ = 0;
      return true;
    }
    if (strchr(" \t\r\n", letter) != nullptr) return end();
    if (strchr("[]=;{}(),", letter) == nullptr) {
      if (length_ < sizeof word_) word_[length_++] = letter;
      return true;
    }
    return end() && (!variables_.begun() || variables_.take({&letter, 1}));
  }

  // Ends the current word.
  bool end() {
    const bool sound = length_ == 0 || variables_.take({word_, length_});
    length_ = 0;
    return sound;
  }

 private:
  bool skip(char before, char letter) {
    if (comment_ == '/' ? letter == '\n' : before == '*' && letter == '/') comment_ = 0;
    if (comment_ == 0) last_ = '\0';
    return true;
  }

  Variables& variables_;
  char word_[32];  // longer words are names
  size_t length_ = 0;
  char last_ = '\0';
  char comment_ = 0;  // '/' up to the end of the line, or '*'
};

}  // namespace

uint64_t bytes_of_ptx(const ByteSource& text, Loading loading) {
  constexpr uint64_t kMost = 64u << 20;
  Variables variables;
  Words words(variables);
  char piece[ByteSource::kBuffer];
  uint64_t length = 0;
  for (bool ended = false; !ended;) {
    const size_t got = text.read_some(length, piece, sizeof piece);
    const size_t used = strnlen(piece, got);
    for (size_t i = 0; i < used; ++i) {
      if (!words.take(piece[i])) return 0;
    }
    length += used;
    ended = got == 0 || used < got;
    if (length > kMost) return 0;
  }
  // Not 0, because 0 means that the size is unknown.
  const uint64_t code = loading == Loading::eager ? length : 1;
  uint64_t sum = 0;
  const bool sound = words.end() && variables.begun() && !variables.overflow() &&
                     !__builtin_add_overflow(variables.bytes(), code, &sum);
  return sound ? sum : 0;
}

}  // namespace fracgpu::cuda
