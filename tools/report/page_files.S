// The files that the page is made of, each as text that ends with a zero.
.macro file name, path
    .globl \name
    .hidden \name
\name:
    .incbin "\path"
    .byte 0
.endm

.section .rodata.page
file page_html, "tools/report/page/page.html"
file page_css, "tools/report/page/page.css"
file page_values_js, "tools/report/page/values.js"
file page_colors_js, "tools/report/page/colors.js"
file page_timeline_js, "tools/report/page/timeline.js"
file page_timeline_drawing_js, "tools/report/page/timeline_drawing.js"
file page_timeline_input_js, "tools/report/page/timeline_input.js"
file page_flame_tree_js, "tools/report/page/flame_tree.js"
file page_flame_js, "tools/report/page/flame.js"
file page_columns_js, "tools/report/page/columns.js"
file page_tables_js, "tools/report/page/tables.js"
file page_start_js, "tools/report/page/start.js"

.section .note.GNU-stack, "", %progbits
