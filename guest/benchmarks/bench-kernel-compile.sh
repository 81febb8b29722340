# A parallel compilation: the C files of the stb libraries, each in several variants, by make and a compiler that it starts
# for each.

STB=/usr/include/stb
VARIANTS=12

# The macro that has the file define its functions besides declaring them.
macro() {
    found=$(grep -o 'STB[A-Z_]*_IMPLEMENTATION' "$1" | head -n 1)
    echo "${found:-STB_DEFINE}"
}

# Files of C++, or of compilers with more than the language, are left out.
write_makefile() {
    mkdir -p /tmp/build
    for file in "$STB"/*.h; do
        name=${file##*/}
        name=${name%.h}
        case $name in stb_connected_components | stb_textedit | stb_tilemap_editor | stb_voxel_render) continue ;; esac
        printf '#define %s\n#include "%s"\n' "$(macro "$file")" "$file" >"/tmp/build/$name.c"
        variant=0
        while [ $variant -lt "$(part $VARIANTS)" ]; do
            variant=$((variant + 1))
            printf '%s\n' "all: $name-$variant.o"
            # Not the shell around it, which is the same again for each.
            printf '%s: %s\n\t/guardrail/software/lib/ld-linux-x86-64.so.2 --library-path /guardrail/software/lib /guardrail/software/%s\n' \
                "$name-$variant.o" "$name.c" "$C -DSTBI_NO_SIMD -c -o $name-$variant.o $name.c"
        done
    done >/tmp/build/Makefile
}

compile() { timed compile make -s -j "$(nproc)" -C /tmp/build all; }

complete() { [ "$(ls /tmp/build/*.o | wc -l)" -eq "$(grep -c ^all: /tmp/build/Makefile)" ]; }

step build build kernel-micro
step makefile write_makefile
step compile compile
step complete complete
