// See terminal.h. Signals are read from a descriptor: their handlers do nothing, and a write that a
// stopped terminal holds up does not delay a signal.
#include "tools/ui/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace fracgpu::tools {
namespace {

constexpr int kSignals[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH};

// How long the rest of a key's bytes may take.
constexpr int kRestOfKey_ms = 50;

constexpr std::pair<std::string_view, int> kSequences[] = {
    {"\033[A", kUp},      {"\033OA", kUp},        {"\033[B", kDown}, {"\033OB", kDown},
    {"\033[5~", kPageUp}, {"\033[6~", kPageDown}, {"\033[H", kHome}, {"\033OH", kHome},
    {"\033[1~", kHome},   {"\033[F", kEnd},       {"\033OF", kEnd},  {"\033[4~", kEnd},
};

// How long the end waits for a terminal that takes no output.
constexpr int kLeaving_ms = 1000;

// Alternate screen, no cursor, no wrapping; and back.
constexpr const char* kEnter = "\033[?1049h\033[?25l\033[?7l\033[2J";
constexpr const char* kLeave = "\033[?7h\033[?25h\033[?1049l";

sigset_t caught() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : kSignals) sigaddset(&set, signal);
  return set;
}

bool is_readable(int fd, int timeout_ms) {
  pollfd one = {.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&one, 1, timeout_ms) > 0;
}

// The size in bytes of a sequence that begins with an escape; 0 if the sequence is not complete.
size_t sequence_size(std::string_view typed) {
  if (typed.size() < 2) return 0;
  if (typed[1] == 'O') return typed.size() < 3 ? 0 : 3;
  if (typed[1] != '[') return 2;
  for (size_t i = 2; i < typed.size(); ++i) {
    if (typed[i] >= '@' && typed[i] <= '~') return i + 1;
  }
  return 0;
}

}  // namespace

Terminal::Terminal() {
  if (isatty(STDIN_FILENO) != 1 || isatty(STDOUT_FILENO) != 1) {
    throw std::runtime_error(
        "top needs a terminal for standard input and output; fracgpu status shows the same once");
  }
  constexpr int kFlags = O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC;
  const char* const name = ttyname(STDOUT_FILENO);
  tty_ = Descriptor(open(name != nullptr ? name : "/dev/tty", kFlags));
  if (tty_.get() < 0) tty_ = Descriptor(open("/dev/tty", kFlags));
  if (tty_.get() < 0 || tcgetattr(tty_.get(), &old_mode_) != 0) {
    throw std::runtime_error("cannot open the terminal");
  }
  const sigset_t set = caught();
  sigprocmask(SIG_BLOCK, &set, &old_mask_);
  signals_ = Descriptor(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
  enter();
}

Terminal::~Terminal() {
  leave();
  sigprocmask(SIG_SETMASK, &old_mask_, nullptr);
}

void Terminal::enter() {
  termios mode = old_mode_;
  // Ctrl-C and Ctrl-Z stay signals.
  mode.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  mode.c_cc[VMIN] = 1;
  mode.c_cc[VTIME] = 0;
  tcsetattr(tty_.get(), TCSANOW, &mode);
  send(kEnter, -1);
}

void Terminal::leave() {
  // The rest of the last picture is not worth waiting for. A user who has stopped the output
  // (Ctrl-S) wants to see it go on now.
  tcflush(tty_.get(), TCOFLUSH);
  tcflow(tty_.get(), TCOON);
  send(kLeave, kLeaving_ms);
  tcsetattr(tty_.get(), TCSANOW, &old_mode_);
}

Terminal::Size Terminal::size() const {
  winsize window = {};
  if (ioctl(tty_.get(), TIOCGWINSZ, &window) != 0 || window.ws_row == 0 || window.ws_col == 0) {
    return {};
  }
  return {window.ws_row, window.ws_col};
}

bool Terminal::send(const std::string& bytes, int timeout_ms) {
  for (size_t done = 0; done < bytes.size();) {
    if (gone_) return false;
    const ssize_t written = write(tty_.get(), bytes.data() + done, bytes.size() - done);
    if (written > 0) {
      done += static_cast<size_t>(written);
    } else if (written < 0 && errno == EAGAIN) {
      pollfd either[] = {{.fd = tty_.get(), .events = POLLOUT, .revents = 0},
                         {.fd = signals_.get(), .events = POLLIN, .revents = 0}};
      const int ready = poll(either, 2, timeout_ms);
      if (ready == 0 || (ready > 0 && either[0].revents == 0)) return false;
    } else if (errno != EINTR) {
      gone_ = true;
    }
  }
  return true;
}

void Terminal::draw(const std::vector<std::string>& lines) {
  std::string picture = "\033[H";
  for (size_t i = 0; i < lines.size(); ++i) {
    picture += lines[i] + "\033[K" + (i + 1 < lines.size() ? "\r\n" : "");
  }
  send(picture + "\033[J", -1);
}

// Takes the next key from the typed bytes; 0 if the key is unknown.
int Terminal::take_key() {
  size_t size = 1;
  int key = static_cast<unsigned char>(typed_[0]);
  if (typed_[0] == '\033') {
    size = sequence_size(typed_);
    const std::string_view sequence = std::string_view(typed_).substr(0, size);
    const auto found = std::find_if(std::begin(kSequences), std::end(kSequences),
                                    [&](const auto& one) { return one.first == sequence; });
    key = found == std::end(kSequences) ? 0 : found->second;
  }
  typed_.erase(0, size == 0 ? typed_.size() : size);
  return key;
}

Terminal::Event Terminal::wait(int timeout_ms) {
  if (gone_) return {Event::Kind::gone};
  if (typed_.empty()) {
    pollfd either[] = {{.fd = tty_.get(), .events = POLLIN, .revents = 0},
                       {.fd = signals_.get(), .events = POLLIN, .revents = 0}};
    poll(either, 2, timeout_ms);
    signalfd_siginfo signal = {};
    if (read(signals_.get(), &signal, sizeof signal) == sizeof signal) {
      const int number = static_cast<int>(signal.ssi_signo);
      if (number == SIGTSTP) {
        leave();
        raise(SIGSTOP);
        enter();
      }
      return number == SIGTSTP || number == SIGWINCH ? Event{Event::Kind::resized}
                                                     : Event{Event::Kind::signal, number};
    }
    if (either[0].revents == 0) return {};
  }
  do {
    char bytes[64];
    const ssize_t size = read(tty_.get(), bytes, sizeof bytes);
    if (size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR)) {
      gone_ = true;
      return {Event::Kind::gone};
    }
    if (size > 0) typed_.append(bytes, static_cast<size_t>(size));
  } while (!typed_.empty() && typed_[0] == '\033' && sequence_size(typed_) == 0 &&
           typed_.size() < 16 && is_readable(tty_.get(), kRestOfKey_ms));
  if (typed_.empty()) return {};
  return {Event::Kind::key, take_key()};
}

}  // namespace fracgpu::tools
