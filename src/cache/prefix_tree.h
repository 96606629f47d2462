/* prefix_tree.h: the inside of the prefix tree, shared by prefix.c (what it remembers) and prefix_save.c (what of it is on a
 * disk). */
#ifndef ES_CACHE_PREFIX_TREE_H
#define ES_CACHE_PREFIX_TREE_H

#include "cache/prefix_save.h"

#define NONE (-1)

/** A list doubly linked by index; `old` is given up, or served, first. */
typedef struct es_prefix_list {
    int32_t old, young;
} es_prefix_list;

typedef struct es_prefix_link {
    int32_t older, younger;
} es_prefix_link;

typedef enum es_prefix_saving { ES_NOT_SAVED, ES_SAVE_QUEUED, ES_SAVING, ES_SAVED } es_prefix_saving;

/** Where a node or mark is on its way to the disk. */
typedef struct es_prefix_save {
    uint64_t id;
    int32_t file; /**< NONE: it has none */
    es_prefix_saving state;
    es_prefix_link queue;
} es_prefix_save;

typedef struct es_prefix_node {
    uint64_t hash;
    int32_t parent, page, children, marks; /**< marks: first of a list, linked by mark.next */
    int32_t next;                          /**< in its bucket, or among the free */
    es_prefix_link order;
    es_prefix_save save;
} es_prefix_node;

typedef struct es_prefix_mark {
    int32_t node; /**< NONE: the root */
    int32_t tail, page, slot;
    int32_t next; /**< at its node, or among the free */
    bool thin;
    es_prefix_link order;
    es_prefix_save save;
} es_prefix_mark;

/** Queues of what is not on the disk yet; thin marks, which seldom live long, come last. */
enum { ES_QUEUE_NODES, ES_QUEUE_MARKS, ES_QUEUE_THIN, ES_QUEUES };

struct es_prefix {
    es_pages *pages, *slots;
    int32_t page;
    bool recurrent;
    es_prefix_node *node;
    es_token *node_tokens; /**< [nodes][page] */
    int32_t *bucket;       /**< [buckets] */
    es_prefix_mark *mark;
    es_token *mark_tokens; /**< [marks][page] */
    int32_t nodes, marks, buckets, free_node, free_mark, root_marks;
    int64_t node_count, mark_count;
    es_prefix_list node_order, mark_order;

    bool saves; /**< what is new is queued to be saved */
    es_prefix_list queue[ES_QUEUES];
    es_prefix_forgotten_fn forgotten;
    void *user;
};

/* prefix.c, for prefix_save.c. */
int32_t es_prefix_find_child(const es_prefix *prefix, int32_t parent, const es_token *tokens);
int32_t es_prefix_add_node(es_prefix *prefix, int32_t parent, const es_token *tokens, int32_t page);
/** The new mark, or NONE: there was one already, or there is no room. The slot is the tree's in any case. */
int32_t es_prefix_add_mark(es_prefix *prefix, int32_t node, const es_token *tail_tokens, int32_t tail, int32_t page,
                           int32_t slot, bool thin);

/* prefix_save.c, for prefix.c. */
/** A node or mark has come to be, is wanted on the disk after all, or goes. */
void es_prefix_queue_node(es_prefix *prefix, int32_t node);
void es_prefix_queue_mark(es_prefix *prefix, int32_t mark);
void es_prefix_forget_node(es_prefix *prefix, int32_t node);
void es_prefix_forget_mark(es_prefix *prefix, int32_t mark);

#endif
