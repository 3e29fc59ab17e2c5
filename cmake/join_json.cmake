# Writes the JSON texts of several files as one list:
#   cmake "-DIN=FILE;FILE" -DOUT=FILE -P join_json.cmake
file(WRITE ${OUT} "[")
set(separator "")
foreach(part IN LISTS IN)
  file(READ ${part} text)
  # Quoted, the text goes through as it is: brackets and semicolons mean something in lists only.
  file(APPEND ${OUT} "${separator}${text}")
  set(separator ",")
endforeach()
file(APPEND ${OUT} "]")
