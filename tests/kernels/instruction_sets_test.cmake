# What is compiled for a processor (cmake/InstructionSets.cmake).
#   cmake -D SOURCE_DIR=... -P instruction_sets_test.cmake
list(APPEND CMAKE_MODULE_PATH ${SOURCE_DIR}/cmake)
include(InstructionSets)

# The fastest set of a processor with these macros, and the sets that its sources make.
function(expect macros fastest sets)
  set(text "")
  foreach(macro ${macros})
    string(APPEND text "#define __${macro}__ 1\n")
  endforeach()
  moestro_fastest_set("${text}" got)
  if(NOT "${got}" STREQUAL "${fastest}")
    message(SEND_ERROR "${macros}: '${got}', not '${fastest}'")
  endif()
  moestro_sets_of("${MOESTRO_SOURCES_OF_${got}}" there)
  if(NOT "${there}" STREQUAL "${sets}")
    message(SEND_ERROR "${macros}: '${there}', not '${sets}'")
  endif()
endfunction()

set(avx2 AVX AVX2 FMA F16C)
set(avx512 ${avx2} AVX512F AVX512BW AVX512VL AVX512DQ)
expect("SSE2" "" "")
expect("AVX2;FMA" "" "")
expect("${avx2}" kAvx2 kAvx2)
expect("${avx2};AVXVNNI" kAvx2Vnni kAvx2Vnni)
expect("${avx2};AVX512F" kAvx2 kAvx2)  # of the first Xeon Phi
expect("${avx512}" kAvx512 kAvx512)
expect("${avx512};AVX512VNNI" kAvx512Vnni kAvx512Vnni)
expect("${avx512};AVX512VNNI;AVX512BF16;AVXVNNI" kAvx512Bf16Vnni "kAvx512Vnni;kAvx512Bf16Vnni")
expect("${avx512};AVX512VNNI;AVX512BF16;AMX_TILE;AMX_BF16;AMX_INT8" kAvx512Amx
  "kAvx512Vnni;kAvx512Bf16Vnni;kAvx512Amx")

# All sources together make all sets.
foreach(set ${MOESTRO_SETS})
  list(APPEND all ${MOESTRO_SOURCES_OF_${set}})
endforeach()
moestro_sets_of("${all}" there)
if(NOT "${there}" STREQUAL "${MOESTRO_SETS}")
  message(SEND_ERROR "all sources: '${there}'")
endif()
