// See event_codec.h.
#include "tools/recording/event_codec.h"

namespace fracgpu::recording {
namespace {

// How a code gives the address.
enum Mode : uint64_t {
  kTold = 0,    // in the column of addresses
  kNull = 1,    // it is 0
  kAgain = 2,   // of an allocation: the previous address of its slot
  kOfSlot = 3,  // of a release: in the column of slots, with all other fields
};
// A code's low byte is the low byte of the shape. Then come the mode, whether a size follows, and
// the rest of the shape.
constexpr uint64_t code_of(uint64_t shape, bool size_told, uint64_t mode) {
  return (shape >> 8) << 11 | (size_told ? 1U : 0U) << 10 | mode << 8 | (shape & 0xff);
}
constexpr uint64_t shape_in(uint64_t code) {
  return (code >> 11) << 8 | (code & 0xff);
}
constexpr bool size_told_in(uint64_t code) {
  return (code >> 10 & 1) != 0;
}
constexpr Mode mode_in(uint64_t code) {
  return static_cast<Mode>(code >> 8 & 3);
}

// How `taken` follows from `bytes`.
enum Rule : uint8_t { kSame = 0, kUnits = 1, kPages = 2, kNothing = 3, kOther = 4 };

constexpr uint64_t taken_by(Rule rule, uint64_t bytes) {
  switch (rule) {
    case kUnits:
      return (bytes + 511) / 512 * 512;
    case kPages:
      return (bytes + (2 << 20) - 1) >> 21 << 21;
    case kNothing:
      return 0;
    default:
      return bytes;
  }
}

// Stands for a new shape. Known shapes are encoded as their number plus one.
constexpr uint64_t kNewShape = 0;

uint64_t mixed(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15;
  return hash ^ hash >> 32;
}

bool same_memory(const Slots::Slot& slot, const Event& event) {
  return slot.bytes == event.bytes && slot.taken == event.taken && slot.owner == event.owner &&
         slot.device == event.device && slot.stack == event.stack && slot.kind == event.kind;
}

// A release's shape omits the fields that it shares with its allocation.
void leave_out_memory(Event& shape) {
  const Event none;
  shape.kind = none.kind;
  shape.device = none.device;
  shape.stack = none.stack;
  shape.owner = none.owner;
}

void encode_shape(const Event& shape, Encoder& out) {
  out.number(static_cast<uint64_t>(shape.type));
  out.number(static_cast<uint64_t>(shape.kind));
  out.number(static_cast<uint64_t>(shape.reason));
  out.number(shape.process + 1U);
  out.number(shape.device + 1U);
  out.number(shape.thread);
  out.number(shape.api);
  out.number(shape.stack);
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
  hash = mixed(hash, shape.stack);
  hash = mixed(hash, shape.owner);
  return mixed(hash, shape.held ^ shape.cap << 1);
}

size_t EventEncoder::PlaceHash::operator()(const Place& place) const {
  return mixed(place.process, place.address);
}

uint32_t EventEncoder::shape_of(const Event& shape, EncodedColumns& columns, uint64_t& told) {
  const auto [known, is_new] = numbers_.try_emplace(shape, next_shape_);
  told = is_new ? kNewShape : known->second + 1;
  if (!is_new) return known->second;
  encode_shape(shape, columns.shapes);
  const uint32_t number = next_shape_;
  if (number == shapes_.size()) {
    shapes_.emplace_back();
  } else {
    numbers_.erase(shapes_[number].event);
  }
  shapes_[number] = {shape};
  next_shape_ = (next_shape_ + 1) % kShapes;
  return number;
}

// Writes the size, if it differs from that of the last event of its shape. Returns whether it does.
bool EventEncoder::tell_size(const Event& event, Shape& shape, EncodedColumns& columns) {
  if (event.bytes == shape.bytes && event.taken == shape.taken) return false;
  shape.bytes = event.bytes;
  shape.taken = event.taken;
  uint8_t rule = kSame;
  while (rule < kOther && taken_by(static_cast<Rule>(rule), event.bytes) != event.taken) ++rule;
  columns.rules.byte(rule);
  columns.sizes.number(event.bytes);
  if (rule == kOther) columns.sizes.number(event.taken);
  return true;
}

uint32_t EventEncoder::take_slot(const Event& event) {
  if (slots_.forgets(event)) living_.clear();
  const uint32_t slot = slots_.take(event);
  living_[{event.address, event.process}] = slot;
  return slot;
}

void EventEncoder::add(const Event& event, EncodedColumns& columns) {
  Event common = event;
  common.time_ns = common.address = common.bytes = common.taken = 0;
  uint64_t mode = event.address == 0 ? kNull : kTold;
  if (event.type == EventType::released) {
    const auto found = living_.find({event.address, event.process});
    if (found != living_.end() && same_memory(slots_[found->second], event)) {
      mode = kOfSlot;
      leave_out_memory(common);
      columns.slots.number(found->second);
      slots_.release(found->second);
      living_.erase(found);
    }
  }
  uint64_t told = kNewShape;
  Shape& shape = shapes_[shape_of(common, columns, told)];
  const bool size_told = mode != kOfSlot && tell_size(event, shape, columns);
  if (event.type == EventType::allocated) {
    Slots::Slot& slot = slots_[take_slot(event)];
    if (event.address != 0 && slot.address == event.address) mode = kAgain;
    slot.address = event.address;
  }
  if (mode == kTold) {
    columns.addresses.number(zigzag(event.address - last_address_));
    last_address_ = event.address;
  }
  columns.codes.number(code_of(told, size_told, mode));
  columns.times.number(zigzag(event.time_ns - last_time_));
  last_time_ = event.time_ns;
}

void EventDecoder::open(const DecodedColumns& columns, const TableSizes& sizes) {
  columns_ = columns;
  sizes_ = &sizes;
}

void EventDecoder::add_shape() {
  const Shape shape{decode_shape(columns_.shapes, *sizes_)};
  if (next_shape_ == shapes_.size()) {
    shapes_.push_back(shape);
  } else {
    shapes_[next_shape_] = shape;
  }
}

void EventDecoder::read_size(Shape& shape) {
  const uint8_t rule = columns_.rules.byte();
  if (rule > kOther) throw Damage("a size of an unknown kind");
  shape.bytes = columns_.sizes.number();
  shape.taken =
      rule == kOther ? columns_.sizes.number() : taken_by(static_cast<Rule>(rule), shape.bytes);
}

void EventDecoder::next(Event& event) {
  const uint64_t code = columns_.codes.number();
  uint64_t number = shape_in(code);
  if (number == kNewShape) {
    add_shape();
    number = next_shape_;
    next_shape_ = (next_shape_ + 1) % kShapes;
  } else if (--number >= shapes_.size()) {
    throw Damage("an event that names what is not there");
  }
  Shape& shape = shapes_[number];
  if (size_told_in(code)) read_size(shape);
  event = shape.event;
  event.bytes = shape.bytes;
  event.taken = shape.taken;
  event.time_ns = last_time_ += from_zigzag(columns_.times.number());
  const Mode mode = mode_in(code);
  if (mode == kTold) event.address = last_address_ += from_zigzag(columns_.addresses.number());
  if (event.type == EventType::allocated) {
    Slots::Slot& slot = slots_[slots_.take(event)];
    if (mode == kAgain) event.address = slot.address;
    slot.address = event.address;
  }
  if (mode == kOfSlot) {
    const uint64_t told = columns_.slots.number();
    if (told >= slots_.size() || !slots_[static_cast<uint32_t>(told)].lives ||
        event.type != EventType::released) {
      throw Damage("a release of nothing");
    }
    const Slots::Slot& slot = slots_[static_cast<uint32_t>(told)];
    event.address = slot.address;
    event.bytes = slot.bytes;
    event.taken = slot.taken;
    event.owner = slot.owner;
    event.device = slot.device;
    event.stack = slot.stack;
    event.kind = slot.kind;
    slots_.release(static_cast<uint32_t>(told));
  }
}

bool EventDecoder::at_end() const {
  return columns_.shapes.at_end() && columns_.codes.at_end() && columns_.times.at_end() &&
         columns_.rules.at_end() && columns_.sizes.at_end() && columns_.addresses.at_end() &&
         columns_.slots.at_end();
}

}  // namespace fracgpu::recording
