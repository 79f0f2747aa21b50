/* The page that a browser gets at "/": its files travel inside the program. */
#ifndef REEL_SERVER_PAGE_FILES_H
#define REEL_SERVER_PAGE_FILES_H

#include <stddef.h>

struct page_file {
    const char *name, *type, *tag; /* the tag with its quotes, as ETag wants it */
    const char *bytes;             /* gzipped */
    size_t n_bytes;
};

/* All files of src/server/page; made by tools/embed_page.sh. */
const struct page_file *page_files(int *n_files);

#endif
