# Writes a file's bytes as the C++ function `std::string_view moestro::NAME()`:
#   cmake -DIN=FILE -DOUT=FILE.cc -DNAME=NAME -P embed_file.cmake
file(READ ${IN} hex HEX)
string(REGEX REPLACE "(................................................................)" "\\1\n" hex "${hex}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
file(WRITE ${OUT} "// Made of ${IN}; see cmake/embed_file.cmake.
#include <string_view>
namespace moestro {
std::string_view ${NAME}();
static const unsigned char kBytes[] = {
${bytes}
};
std::string_view ${NAME}() { return {reinterpret_cast<const char*>(kBytes), sizeof kBytes}; }
}  // namespace moestro
")
