// The objects that are linked into every library, as bytes; the build compiles them (cmake/CleaveAot.cmake).
#define EMBED(name, file)       \
  asm(".section .rodata\n"      \
      ".balign 16\n"            \
      ".globl cleave_aot_" name \
      "_begin\n"                \
      "cleave_aot_" name        \
      "_begin:\n"               \
      ".incbin \"" file         \
      "\"\n"                    \
      ".globl cleave_aot_" name \
      "_end\n"                  \
      "cleave_aot_" name        \
      "_end:\n"                 \
      ".byte 0\n"               \
      ".previous\n")

EMBED("runtime", CLEAVE_AOT_RUNTIME);
EMBED("helpers", CLEAVE_AOT_HELPERS);
