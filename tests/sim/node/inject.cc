// Parsing the orders for failures and delays, and counting calls against them.
// The orders are read once, when the library is loaded, and never change. Only a process that has
// orders or counts its calls ever comes here, so a mutex and a linear search are good enough.
#include "sim/node/inject.h"

#include <time.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "sim/node/calls.h"

namespace sim {
namespace {

struct Order {
  std::string function;
  unsigned long call = 0;  // which one fails; 0: none
  bool onwards = false;
  int result = 0;
  unsigned long delay_us = 0;
  std::string awaited;  // another function
  unsigned long awaited_call = 1;
  unsigned long seen = 0;
};

std::vector<Order>& orders() {
  static auto* const all = [] {
    auto* list = new std::vector<Order>;
    const auto each = [](const char* variable, auto&& take) {
      const char* text = std::getenv(variable);
      std::string rest = text != nullptr ? text : "";
      while (!rest.empty()) {
        const size_t comma = rest.find(',');
        take(rest.substr(0, comma));
        rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
      }
    };
    each("FRACGPU_SIM_FAIL", [list](const std::string& item) {
      const size_t colon = item.find(':');
      const size_t equals = item.find('=');
      if (colon == std::string::npos || equals == std::string::npos || colon > equals) return;
      Order order;
      order.function = item.substr(0, colon);
      char* end = nullptr;
      order.call = std::strtoul(item.c_str() + colon + 1, &end, 10);
      order.onwards = *end == '+';
      order.result = static_cast<int>(std::strtol(item.c_str() + equals + 1, nullptr, 10));
      list->push_back(order);
    });
    each("FRACGPU_SIM_DELAY_US", [list](const std::string& item) {
      const size_t equals = item.find('=');
      if (equals == std::string::npos) return;
      Order order;
      order.function = item.substr(0, equals);
      order.delay_us = std::strtoul(item.c_str() + equals + 1, nullptr, 10);
      list->push_back(order);
    });
    each("FRACGPU_SIM_AWAIT", [list](const std::string& item) {
      const size_t equals = item.find('=');
      if (equals == std::string::npos) return;
      Order order;
      order.function = item.substr(0, equals);
      const size_t colon = item.find(':', equals);
      order.awaited = item.substr(equals + 1, colon - equals - 1);
      if (colon != std::string::npos)
        order.awaited_call = std::strtoul(item.c_str() + colon + 1, nullptr, 10);
      list->push_back(order);
    });
    return list;
  }();
  return *all;
}

// Null: nobody counts. Never closed: programs call the libraries from their own exit handlers.
CallCounts* counts() {
  static CallCounts* const all = [] {
    const char* const path = std::getenv(kCallsVariable);
    return path != nullptr && *path != '\0' ? CallCounts::open(path).release() : nullptr;
  }();
  return all;
}

// How often each function was called.
struct Awaited {
  std::condition_variable changed;
  std::map<std::string, unsigned long> calls;
};

Awaited& awaited() {
  static auto* const all = new Awaited;
  return *all;
}

void await(const Order& order, std::unique_lock<std::mutex>& lock) {
  const auto is_called = [&] { return awaited().calls[order.awaited] >= order.awaited_call; };
  if (!awaited().changed.wait_for(lock, std::chrono::seconds(20), is_called)) {
    std::fprintf(stderr, "simulated driver: %s awaits %s in vain\n", order.function.c_str(),
                 order.awaited.c_str());
  }
}

int obey(const std::string& function) {
  static std::mutex mutex;
  int result = 0;
  unsigned long delay_us = 0;
  {
    std::unique_lock<std::mutex> lock(mutex);
    ++awaited().calls[function];
    awaited().changed.notify_all();
    for (Order& order : orders()) {
      if (order.function != function) continue;
      if (!order.awaited.empty()) await(order, lock);
      delay_us += order.delay_us;
      if (order.call == 0) continue;
      ++order.seen;
      if (order.seen == order.call || (order.onwards && order.seen > order.call))
        result = order.result;
    }
  }
  if (delay_us != 0) {
    timespec pause{static_cast<time_t>(delay_us / 1000000),
                   static_cast<long>(delay_us % 1000000) * 1000};
    nanosleep(&pause, nullptr);
  }
  return result;
}

[[gnu::constructor]] void begin() {
  injecting.store(!orders().empty() || counts() != nullptr, std::memory_order_relaxed);
}

}  // namespace

constinit std::atomic<bool> injecting{false};

int inject(const char* function) {
  if (counts() != nullptr) counts()->add(function);
  return obey(function);
}

void inject_end(const char* function) {
  if (!orders().empty()) obey(std::string("end of ") + function);
}

}  // namespace sim
