# cpack -G DEB or -G RPM, in a build folder: what is installed, as a package for Debian 11 and later, or for a
# distribution with glibc 2.31 or later. Nothing is started or preloaded by installing it.
set(systemd_units lib/systemd/system)
foreach(unit gc.service gc.timer metrics.service)
  install(FILES ${CMAKE_CURRENT_LIST_DIR}/fracgpu-${unit} DESTINATION ${systemd_units})
endforeach()
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION share/doc/fracgpu RENAME copyright)

set(CPACK_PACKAGE_NAME fracgpu)
set(CPACK_PACKAGE_VENDOR "the fracgpu maintainers")
set(CPACK_PACKAGE_CONTACT "the fracgpu maintainers <maintainers@fracgpu.dev>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "hard caps on the GPU memory of containers and launch trees")
set(CPACK_PACKAGE_DESCRIPTION "A library that is preloaded into programs and holds the GPU memory of a container or \
a launch tree under a cap, on NVIDIA's and AMD's GPUs, and the command that launches, shows and changes such caps.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION admin)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6 (>= 2.31)")

set(CPACK_RPM_FILE_NAME RPM-DEFAULT)
set(CPACK_RPM_PACKAGE_LICENSE Apache-2.0)
# Folders of the system, which belong to other packages.
set(CPACK_RPM_EXCLUDE_FROM_AUTO_FILELIST_ADDITION
  /usr/lib/systemd /usr/lib/systemd/system /usr/share/man /usr/share/man/man1 /usr/share/bash-completion
  /usr/share/bash-completion/completions /usr/share/zsh /usr/share/zsh/site-functions /usr/share/zsh/vendor-completions
  /usr/share/fish /usr/share/fish/vendor_completions.d)
include(CPack)
