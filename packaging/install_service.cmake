# The service's unit and its configuration. Wants: bin_dir below the prefix, source_dir, made_dir. A unit names its
# files by their whole paths, so it is made when the prefix is known.
get_filename_component(prefix "${CMAKE_INSTALL_PREFIX}" ABSOLUTE)
# The configuration is below the prefix; below / where that is /usr, as in the package.
string(REGEX REPLACE "^/usr$" "" top "${prefix}")
set(etc_dir "${top}/etc/moestro")
if(NOT EXISTS "$ENV{DESTDIR}${etc_dir}/box.yaml")  # it may have been changed
  file(INSTALL DESTINATION "${etc_dir}" TYPE FILE FILES "${source_dir}/box.yaml")
endif()

string(PREPEND bin_dir "${prefix}/")
configure_file("${source_dir}/moestro.service.in" "${made_dir}/moestro.service" @ONLY)
file(INSTALL DESTINATION "${prefix}/lib/systemd/system" TYPE FILE FILES "${made_dir}/moestro.service")
