"""vaapi_client.py: makes video surfaces by VA-API until it is refused, and answers with one line of JSON."""
import ctypes
import json
import os
import sys
from ctypes import byref, c_int, c_uint, c_void_p

VA, VA_DRM = ctypes.CDLL("libva.so.2"), ctypes.CDLL("libva-drm.so.2")
YUV420, SIDE = 1, 2048
MOST = 10000  # the end of a driver that never refuses
NOT_POSSIBLE = 1  # VA_STATUS_ERROR_OPERATION_FAILED
IMAGE_BYTES = 512  # more than VAImage has


def main():
    VA_DRM.vaGetDisplayDRM.restype = c_void_p
    display = c_void_p(VA_DRM.vaGetDisplayDRM(os.open("/dev/dri/renderD128", os.O_RDWR)))
    major, minor, surface = c_int(), c_int(), c_uint()
    if (rc := VA.vaInitialize(display, byref(major), byref(minor))) != 0:
        sys.exit(f"vaapi_client.py: vaInitialize: {rc}")
    count = 0
    while rc == 0 and count < MOST:
        rc = VA.vaCreateSurfaces(display, YUV420, SIDE, SIDE, byref(surface), 1, None, 0)
        # Newer drivers take a surface's memory at its first use.
        image = rc or VA.vaDeriveImage(display, surface, ctypes.create_string_buffer(IMAGE_BYTES))
        rc = image if image != NOT_POSSIBLE else rc
        count += rc == 0
    print(json.dumps({"command": "surfaces", "count": count, "rc": rc}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
