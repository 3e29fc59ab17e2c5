# Man pages and completions of the installed programs. Wants: programs, bin_dir and data_dir, below the prefix.
set(prefix "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}")

function(describe program form file)
  get_filename_component(dir "${prefix}/${data_dir}/${file}" DIRECTORY)
  file(MAKE_DIRECTORY "${dir}")
  set(packed)
  if(file MATCHES "\\.gz$")
    set(packed COMMAND gzip -9n)
  endif()
  message(STATUS "Installing: ${prefix}/${data_dir}/${file}")
  execute_process(COMMAND "${prefix}/${bin_dir}/${program}" --describe-as ${form} ${packed}
    OUTPUT_FILE "${prefix}/${data_dir}/${file}" COMMAND_ERROR_IS_FATAL ANY)
  list(APPEND CMAKE_INSTALL_MANIFEST_FILES "${prefix}/${data_dir}/${file}")
  set(CMAKE_INSTALL_MANIFEST_FILES "${CMAKE_INSTALL_MANIFEST_FILES}" PARENT_SCOPE)
endfunction()

foreach(program ${programs})
  describe(${program} man man/man1/${program}.1.gz)
  describe(${program} bash bash-completion/completions/${program})
  describe(${program} zsh zsh/vendor-completions/_${program})
  describe(${program} fish fish/vendor_completions.d/${program}.fish)
endforeach()
