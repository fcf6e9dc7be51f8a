// See event_codec.h.
#include "tools/recording/event_codec.h"

namespace fracgpu::recording {
namespace {

// How a code tells the address.
enum Mode : uint64_t {
  kTold = 0,    // in the column of addresses
  kNull = 1,    // it is 0
  kAgain = 2,   // of an allocation: that which its slot had before
  kOfSlot = 3,  // of a release: in the column of slots, and all else with it
};
// Of a code the low byte is that of the shape, then comes the mode, then the rest of the shape.
constexpr uint64_t code_of(uint64_t shape, uint64_t mode) {
  return (shape >> 8) << 10 | mode << 8 | (shape & 0xff);
}
constexpr uint64_t shape_in(uint64_t code) {
  return (code >> 10) << 8 | (code & 0xff);
}
constexpr Mode mode_in(uint64_t code) {
  return static_cast<Mode>(code >> 8 & 3);
}
// The shape is a new one; others are told as one above their number.
constexpr uint64_t kNewShape = 0;

uint64_t mixed(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15;
  return hash ^ hash >> 32;
}

bool same_memory(const Slots::Slot& slot, const Event& event) {
  return slot.bytes == event.bytes && slot.taken == event.taken && slot.owner == event.owner &&
         slot.device == event.device && slot.stack == event.stack && slot.kind == event.kind;
}

// What a release has in common with its allocation is left out of its shape.
void leave_out_memory(Event& shape) {
  const Event none;
  shape.kind = none.kind;
  shape.device = none.device;
  shape.stack = none.stack;
  shape.bytes = none.bytes;
  shape.taken = none.taken;
  shape.owner = none.owner;
}

// `taken` is `bytes`, rounded up, and `device` and the like hardly ever kNone.
void encode_shape(const Event& shape, Encoder& out) {
  out.number(static_cast<uint64_t>(shape.type));
  out.number(static_cast<uint64_t>(shape.kind));
  out.number(static_cast<uint64_t>(shape.reason));
  out.number(shape.process + 1U);
  out.number(shape.device + 1U);
  out.number(shape.thread);
  out.number(shape.api);
  out.number(shape.stack);
  out.number(shape.bytes);
  out.difference(shape.taken - shape.bytes);
  out.number(shape.owner);
  out.number(shape.held);
  out.number(shape.cap);
}

Event decode_shape(Decoder& in, const TableSizes& sizes) {
  Event shape;
  shape.type = static_cast<EventType>(in.number_below(static_cast<uint64_t>(EventType::mark) + 1));
  if (static_cast<uint64_t>(shape.type) == 0) throw Damage("an event of an unknown type");
  shape.kind = static_cast<MemoryKind>(in.number_below(kMemoryKinds));
  shape.reason =
      static_cast<RefusalReason>(in.number_below(static_cast<uint64_t>(RefusalReason::ledger) + 1));
  shape.process = static_cast<uint32_t>(in.number_below(sizes.processes + 1)) - 1U;
  shape.device = static_cast<uint32_t>(in.number_below(sizes.devices + 1)) - 1U;
  shape.thread = static_cast<uint32_t>(in.number_below(uint64_t{1} << 32));
  shape.api = static_cast<uint32_t>(in.number_below(sizes.texts));
  shape.stack = static_cast<uint32_t>(in.number_below(sizes.stacks));
  shape.bytes = in.number();
  shape.taken = shape.bytes + in.difference();
  shape.owner = in.number();
  shape.held = in.number();
  shape.cap = in.number();
  return shape;
}

}  // namespace

uint32_t Slots::size_class_of(const Event& allocated) {
  return static_cast<uint32_t>(mixed(allocated.process, allocated.bytes) % kSizeClasses);
}

uint32_t Slots::take(const Event& allocated) {
  if (forgets(allocated)) {
    slots_.clear();
    released_.assign(kSizeClasses, kNone);
  }
  const uint32_t size_class = size_class_of(allocated);
  uint32_t number = released_[size_class];
  if (number == kNone) {
    number = size();
    slots_.emplace_back();
  } else {
    released_[size_class] = slots_[number].next;
  }
  Slot& slot = slots_[number];
  slot.bytes = allocated.bytes;
  slot.taken = allocated.taken;
  slot.owner = allocated.owner;
  slot.device = allocated.device;
  slot.stack = allocated.stack;
  slot.size_class = size_class;
  slot.kind = allocated.kind;
  slot.lives = true;
  return number;
}

void Slots::release(uint32_t number) {
  Slot& slot = slots_[number];
  slot.lives = false;
  slot.next = released_[slot.size_class];
  released_[slot.size_class] = number;
}

size_t EventEncoder::Hash::operator()(const Event& shape) const {
  uint64_t hash = static_cast<uint64_t>(shape.type) | static_cast<uint64_t>(shape.kind) << 8 |
                  static_cast<uint64_t>(shape.reason) << 16;
  hash = mixed(hash, static_cast<uint64_t>(shape.process) << 32 | shape.device);
  hash = mixed(hash, static_cast<uint64_t>(shape.thread) << 32 | shape.api);
  hash = mixed(hash, static_cast<uint64_t>(shape.stack) << 32 ^ shape.bytes);
  hash = mixed(hash, shape.taken);
  hash = mixed(hash, shape.owner);
  return mixed(hash, shape.held ^ shape.cap << 1);
}

size_t EventEncoder::PlaceHash::operator()(const Place& place) const {
  return mixed(place.process, place.address);
}

uint64_t EventEncoder::shape_of(const Event& shape, EncodedColumns& columns) {
  const auto [known, is_new] = numbers_.try_emplace(shape, next_shape_);
  if (!is_new) return known->second + 1;
  encode_shape(shape, columns.shapes);
  if (next_shape_ == shapes_.size()) {
    shapes_.push_back(shape);
  } else {
    numbers_.erase(shapes_[next_shape_]);
    shapes_[next_shape_] = shape;
  }
  next_shape_ = (next_shape_ + 1) % kShapes;
  return kNewShape;
}

uint32_t EventEncoder::take_slot(const Event& event) {
  if (slots_.forgets(event)) living_.clear();
  const uint32_t slot = slots_.take(event);
  living_[{event.address, event.process}] = slot;
  return slot;
}

void EventEncoder::add(const Event& event, EncodedColumns& columns) {
  Event shape = event;
  shape.time_ns = 0;
  shape.address = 0;
  uint64_t mode = event.address == 0 ? kNull : kTold;
  if (event.type == EventType::released) {
    const auto found = living_.find({event.address, event.process});
    if (found != living_.end() && same_memory(slots_[found->second], event)) {
      mode = kOfSlot;
      leave_out_memory(shape);
      columns.slots.number(found->second);
      slots_.release(found->second);
      living_.erase(found);
    }
  }
  const uint64_t told = shape_of(shape, columns);
  if (event.type == EventType::allocated) {
    Slots::Slot& slot = slots_[take_slot(event)];
    if (event.address != 0 && slot.address == event.address) mode = kAgain;
    slot.address = event.address;
  }
  if (mode == kTold) {
    columns.addresses.number(zigzag(event.address - last_address_));
    last_address_ = event.address;
  }
  columns.codes.number(code_of(told, mode));
  columns.times.number(zigzag(event.time_ns - last_time_));
  last_time_ = event.time_ns;
}

void EventDecoder::open(const DecodedColumns& columns, const TableSizes& sizes) {
  columns_ = columns;
  sizes_ = &sizes;
}

void EventDecoder::add_shape() {
  const Event shape = decode_shape(columns_.shapes, *sizes_);
  if (next_shape_ == shapes_.size()) {
    shapes_.push_back(shape);
  } else {
    shapes_[next_shape_] = shape;
  }
}

void EventDecoder::next(Event& event) {
  const uint64_t code = columns_.codes.number();
  uint64_t shape = shape_in(code);
  if (shape == kNewShape) {
    add_shape();
    shape = next_shape_;
    next_shape_ = (next_shape_ + 1) % kShapes;
  } else if (--shape >= shapes_.size()) {
    throw Damage("an event that names what is not there");
  }
  event = shapes_[shape];
  event.time_ns = last_time_ += from_zigzag(columns_.times.number());
  const Mode mode = mode_in(code);
  if (mode == kTold) event.address = last_address_ += from_zigzag(columns_.addresses.number());
  if (event.type == EventType::allocated) {
    Slots::Slot& slot = slots_[slots_.take(event)];
    if (mode == kAgain) event.address = slot.address;
    slot.address = event.address;
  }
  if (mode == kOfSlot) {
    const uint64_t number = columns_.slots.number();
    if (number >= slots_.size() || !slots_[static_cast<uint32_t>(number)].lives ||
        event.type != EventType::released) {
      throw Damage("a release of nothing");
    }
    const Slots::Slot& slot = slots_[static_cast<uint32_t>(number)];
    event.address = slot.address;
    event.bytes = slot.bytes;
    event.taken = slot.taken;
    event.owner = slot.owner;
    event.device = slot.device;
    event.stack = slot.stack;
    event.kind = slot.kind;
    slots_.release(static_cast<uint32_t>(number));
  }
}

bool EventDecoder::at_end() const {
  return columns_.shapes.at_end() && columns_.codes.at_end() && columns_.times.at_end() &&
         columns_.addresses.at_end() && columns_.slots.at_end();
}

}  // namespace fracgpu::recording
