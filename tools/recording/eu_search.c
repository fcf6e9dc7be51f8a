// What Debian 13's archives of elfutils (0.192) call and do not have: its lib/eu-search.c is linked
// into the shared libraries alone. Where an archive has it, this is not linked.
#define _GNU_SOURCE
#include <search.h>
#include <stddef.h>

// As elfutils' search_tree begins. The lock that may follow serves threads, and there is one.
struct search_tree {
  void* root;
};

typedef int (*compare_keys)(const void*, const void*);

void* eu_tsearch(const void* key, struct search_tree* tree, compare_keys compare) {
  return tsearch(key, &tree->root, compare);
}

void* eu_tfind(const void* key, struct search_tree* tree, compare_keys compare) {
  return tfind(key, &tree->root, compare);
}

void* eu_tdelete(const void* key, struct search_tree* tree, compare_keys compare) {
  return tdelete(key, &tree->root, compare);
}

void eu_tdestroy(struct search_tree* tree, void (*free_node)(void*)) {
  tdestroy(tree->root, free_node);
  tree->root = NULL;
}

void eu_search_tree_init(struct search_tree* tree) {
  tree->root = NULL;
}

void eu_search_tree_fini(struct search_tree* tree, void (*free_node)(void*)) {
  eu_tdestroy(tree, free_node);
}
