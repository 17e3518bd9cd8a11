# ONNX's own message definitions (onnx.proto of the system package), compiled by protoc into the build folder. Only the
# light protobuf runtime is linked: no ONNX library, no Python. Fields that are newer than onnx.proto are skipped by
# protobuf, as its wire format intends. Sets CLEAVE_ONNX_LIBS.
find_program(PROTOC protoc)
find_path(ONNX_PROTO_DIR onnx/onnx.proto)
find_library(PROTOBUF_LITE protobuf-lite)
if(NOT PROTOC OR NOT ONNX_PROTO_DIR OR NOT PROTOBUF_LITE)
  message(FATAL_ERROR "protoc, onnx/onnx.proto or libprotobuf-lite is missing: run `make setup`")
endif()

set(onnx_generated ${CMAKE_BINARY_DIR}/generated/onnx)
file(MAKE_DIRECTORY ${onnx_generated})
add_custom_command(
  OUTPUT ${onnx_generated}/onnx.pb.cc ${onnx_generated}/onnx.pb.h
  COMMAND ${PROTOC} --proto_path=${ONNX_PROTO_DIR}/onnx --cpp_out=${onnx_generated} ${ONNX_PROTO_DIR}/onnx/onnx.proto
  DEPENDS ${ONNX_PROTO_DIR}/onnx/onnx.proto
  COMMENT "Compiling onnx.proto" VERBATIM)
add_library(cleave_onnx_proto STATIC ${onnx_generated}/onnx.pb.cc ${onnx_generated}/onnx.pb.h)
target_include_directories(cleave_onnx_proto SYSTEM PUBLIC ${CMAKE_BINARY_DIR}/generated)
target_compile_options(cleave_onnx_proto PRIVATE -w)
target_link_libraries(cleave_onnx_proto PUBLIC ${PROTOBUF_LITE} Threads::Threads)
set(CLEAVE_ONNX_LIBS cleave_onnx_proto)
