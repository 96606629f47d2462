/* template_symbols.c: which names a scope hides. */
#include "text/template_syntax.h"

void tpl_resolve_scopes(tpl_run *run, tpl_node *root)
{
    (void)run;
    (void)root;
}
