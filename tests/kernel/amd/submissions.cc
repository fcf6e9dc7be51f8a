// Render node ioctls about work: submissions, which are complete at once without being run, and the
// synchronization objects by which programs wait for them. A program's objects are of all its
// files.
#include <amdgpu_drm.h>
#include <sys/ioctl.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "ioctl.h"
#include "user_memory.h"

namespace kfd {
namespace {

template <typename Value>
bool copy_list(std::vector<Value>& to, uint64_t from, uint64_t count) {
  constexpr uint64_t kMost = 1 << 20;
  if (count > kMost) return false;
  to.resize(count);
  return count == 0 || copy_from_user(to.data(), from, count * sizeof(Value));
}

// Handles and their points, which are 0 for objects without a timeline.
bool copy_lists(std::vector<uint32_t>& list, uint64_t handles, std::vector<uint64_t>& at,
                uint64_t points, uint32_t count) {
  if (!copy_list(list, handles, count)) return false;
  if (points != 0) return copy_list(at, points, count);
  at.assign(count, 0);
  return true;
}

Syncobj* syncobj_of(Caller& caller, uint32_t handle) {
  const auto found = caller.process.syncobjs.find(handle);
  return found != caller.process.syncobjs.end() ? &found->second : nullptr;
}

void signal(Syncobj& object, uint64_t point) {
  object.has_fence = true;
  object.point = std::max(object.point, point);
}

long create(Caller& caller, drm_syncobj_create& args) {
  args.handle = ++caller.process.last_syncobj;
  caller.process.syncobjs[args.handle] = {.has_fence =
                                              (args.flags & DRM_SYNCOBJ_CREATE_SIGNALED) != 0};
  return 0;
}

long destroy(Caller& caller, drm_syncobj_destroy& args) {
  return caller.process.syncobjs.erase(args.handle) == 1 ? 0 : -EINVAL;
}

long change(Caller& caller, uint64_t handles, uint64_t points, uint32_t count, bool is_signaled) {
  std::vector<uint32_t> list;
  std::vector<uint64_t> at;
  if (!copy_lists(list, handles, at, points, count)) return -EFAULT;
  for (uint32_t i = 0; i < count; ++i) {
    Syncobj* const object = syncobj_of(caller, list[i]);
    if (object == nullptr) return -ENOENT;
    if (is_signaled) {
      signal(*object, at[i]);
    } else {
      *object = {};
    }
  }
  return 0;
}

long reset(Caller& caller, drm_syncobj_array& args) {
  return change(caller, args.handles, 0, args.count_handles, false);
}
long signal_all(Caller& caller, drm_syncobj_array& args) {
  return change(caller, args.handles, 0, args.count_handles, true);
}
long signal_points(Caller& caller, drm_syncobj_timeline_array& args) {
  return change(caller, args.handles, args.points, args.count_handles, true);
}

long query(Caller& caller, drm_syncobj_timeline_array& args) {
  std::vector<uint32_t> list;
  if (!copy_list(list, args.handles, args.count_handles)) return -EFAULT;
  std::vector<uint64_t> points;
  for (const uint32_t handle : list) {
    const Syncobj* const object = syncobj_of(caller, handle);
    if (object == nullptr) return -ENOENT;
    points.push_back(object->point);
  }
  return copy_to_user(args.points, points.data(), points.size() * sizeof(uint64_t)) ? 0 : -EFAULT;
}

long transfer(Caller& caller, drm_syncobj_transfer& args) {
  const Syncobj* const from = syncobj_of(caller, args.src_handle);
  Syncobj* const to = syncobj_of(caller, args.dst_handle);
  if (from == nullptr || to == nullptr) return -ENOENT;
  if (!from->has_fence || from->point < args.src_point) return -EINVAL;
  signal(*to, args.dst_point);
  return 0;
}

// Waits until `count` objects, or one of them, have reached their points. `first`: one that has.
long wait(Caller& caller, uint64_t handles, uint64_t points, uint32_t count, int64_t until_ns,
          uint32_t flags, uint32_t& first) {
  std::vector<uint32_t> list;
  std::vector<uint64_t> at;
  if (!copy_lists(list, handles, at, points, count)) return -EFAULT;
  if (count == 0) return 0;
  for (;;) {
    uint32_t reached = 0;
    {
      const std::lock_guard lock(caller.process.mutex);
      for (uint32_t i = 0; i < count; ++i) {
        const Syncobj* const object = syncobj_of(caller, list[i]);
        if (object == nullptr) return -ENOENT;
        const bool will_come = (flags & (DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT |
                                         DRM_SYNCOBJ_WAIT_FLAGS_WAIT_AVAILABLE)) != 0;
        if (object->has_fence && object->point >= at[i]) {
          if (reached++ == 0) first = i;
        } else if (!will_come) {
          return -EINVAL;
        }
      }
    }
    if ((flags & DRM_SYNCOBJ_WAIT_FLAGS_WAIT_ALL) != 0 ? reached == count : reached > 0) return 0;
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (now.tv_sec * 1'000'000'000 + now.tv_nsec >= until_ns) return -ETIME;
    constexpr timespec kStep{0, 1'000'000};
    nanosleep(&kStep, nullptr);
  }
}

long wait_for_objects(Caller& caller, drm_syncobj_wait& args) {
  return wait(caller, args.handles, 0, args.count_handles, args.timeout_nsec, args.flags,
              args.first_signaled);
}
long wait_for_points(Caller& caller, drm_syncobj_timeline_wait& args) {
  return wait(caller, args.handles, args.points, args.count_handles, args.timeout_nsec, args.flags,
              args.first_signaled);
}

// Submissions.

template <typename Value>
bool copy_chunk(std::vector<Value>& to, const drm_amdgpu_cs_chunk& chunk) {
  return copy_list(to, chunk.chunk_data, chunk.length_dw * sizeof(uint32_t) / sizeof(Value));
}

long signal_chunk(Caller& caller, const drm_amdgpu_cs_chunk& chunk) {
  std::vector<drm_amdgpu_cs_chunk_sem> objects;
  std::vector<drm_amdgpu_cs_chunk_syncobj> points;
  const bool has_points = chunk.chunk_id == AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_SIGNAL;
  if (!(has_points ? copy_chunk(points, chunk) : copy_chunk(objects, chunk))) return -EFAULT;
  for (const auto& each : objects)
    points.push_back({.handle = each.handle, .flags = 0, .point = 0});
  for (const auto& each : points) {
    Syncobj* const object = syncobj_of(caller, each.handle);
    if (object == nullptr) return -ENOENT;
    signal(*object, each.point);
  }
  return 0;
}

long submit(Caller& caller, drm_amdgpu_cs& args) {
  std::vector<uint64_t> addresses;
  if (!copy_list(addresses, args.in.chunks, args.in.num_chunks)) return -EFAULT;
  for (const uint64_t address : addresses) {
    drm_amdgpu_cs_chunk chunk{};
    if (!copy_from_user(&chunk, address, sizeof chunk)) return -EFAULT;
    switch (chunk.chunk_id) {
      case AMDGPU_CHUNK_ID_SYNCOBJ_OUT:
      case AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_SIGNAL:
        if (const long result = signal_chunk(caller, chunk); result != 0) return result;
        break;
      // What these wait for is complete.
      case AMDGPU_CHUNK_ID_IB:
      case AMDGPU_CHUNK_ID_FENCE:
      case AMDGPU_CHUNK_ID_DEPENDENCIES:
      case AMDGPU_CHUNK_ID_SCHEDULED_DEPENDENCIES:
      case AMDGPU_CHUNK_ID_SYNCOBJ_IN:
      case AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_WAIT:
      case AMDGPU_CHUNK_ID_BO_HANDLES:
        break;
      default:
        report_unknown(caller.accounting, "a chunk of a submission", chunk.chunk_id,
                       chunk.length_dw * sizeof(uint32_t));
        return -EINVAL;
    }
  }
  args.out.handle = ++caller.process.submissions;
  return 0;
}

long wait_for_submission(Caller&, drm_amdgpu_wait_cs& args) {
  args.out.status = 0;
  return 0;
}

long wait_for_submissions(Caller&, drm_amdgpu_wait_fences& args) {
  args.out.status = 1;
  args.out.first_signaled = 0;
  return 0;
}

long wait_for_buffer(Caller& caller, drm_amdgpu_gem_wait_idle& args) {
  const Lock lock(&caller.accounting);
  if (handle_of_caller(caller, args.in.handle, true) == 0) return -ENOENT;
  args.out.status = args.out.domain = 0;
  return 0;
}

constexpr Ioctl waits(Ioctl ioctl) {
  ioctl.waits = true;
  return ioctl;
}

constexpr Ioctl kTable[] = {
    IOCTL(DRM_IOCTL_AMDGPU_CS, submit),
    IOCTL(DRM_IOCTL_AMDGPU_WAIT_CS, wait_for_submission),
    IOCTL(DRM_IOCTL_AMDGPU_WAIT_FENCES, wait_for_submissions),
    IOCTL(DRM_IOCTL_AMDGPU_GEM_WAIT_IDLE, wait_for_buffer),
    IOCTL(DRM_IOCTL_SYNCOBJ_CREATE, create),
    IOCTL(DRM_IOCTL_SYNCOBJ_DESTROY, destroy),
    IOCTL(DRM_IOCTL_SYNCOBJ_RESET, reset),
    IOCTL(DRM_IOCTL_SYNCOBJ_SIGNAL, signal_all),
    IOCTL(DRM_IOCTL_SYNCOBJ_TIMELINE_SIGNAL, signal_points),
    IOCTL(DRM_IOCTL_SYNCOBJ_QUERY, query),
    IOCTL(DRM_IOCTL_SYNCOBJ_TRANSFER, transfer),
    waits(IOCTL(DRM_IOCTL_SYNCOBJ_WAIT, wait_for_objects)),
    waits(IOCTL(DRM_IOCTL_SYNCOBJ_TIMELINE_WAIT, wait_for_points)),
    NOT_SIMULATED(DRM_IOCTL_SYNCOBJ_HANDLE_TO_FD),
    NOT_SIMULATED(DRM_IOCTL_SYNCOBJ_FD_TO_HANDLE),
    NOT_SIMULATED(DRM_IOCTL_AMDGPU_BO_LIST),
    NOT_SIMULATED(DRM_IOCTL_AMDGPU_FENCE_TO_HANDLE),
};

}  // namespace

std::span<const Ioctl> submission_ioctls() {
  return kTable;
}

}  // namespace kfd
