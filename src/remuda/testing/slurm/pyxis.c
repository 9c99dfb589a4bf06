/* Registers the options of Pyxis with srun and does nothing else: commands are started without an image.
 * What <slurm/spank.h> declares of a plugin is stated here, so that no header of Slurm is needed. VERSION is Slurm's:
 * major << 16 | minor << 8 | micro. Options as in the usage text of Pyxis 0.20.
 */

#include <stddef.h>

typedef int (*option_callback)(int value, const char *text, int remote);

struct spank_option {
    char *name, *arginfo, *usage;
    int has_arg, val;
    option_callback cb;
};

const char plugin_name[] = "pyxis";
const char plugin_type[] = "spank";
const unsigned int plugin_version = VERSION;
const unsigned int spank_plugin_version = 1;

static int taken(int value, const char *text, int remote)
{
    (void)value, (void)text, (void)remote;
    return 0;
}

/* A plugin that is called at no time is refused. */
int slurm_spank_init(void *spank, int count, char **words)
{
    (void)spank, (void)count, (void)words;
    return 0;
}

#define WITH(name, what) {name, what, name, 1, 0, taken}
#define FLAG(name) {name, NULL, name, 0, 0, taken}

struct spank_option spank_options[] = {
    WITH("container-image", "[USER@][REGISTRY#]IMAGE[:TAG]|PATH"),
    WITH("container-mounts", "SRC:DST[:FLAGS][,SRC:DST...]"),
    WITH("container-workdir", "PATH"),
    WITH("container-name", "NAME"),
    WITH("container-save", "PATH"),
    WITH("container-env", "NAME[,NAME...]"),
    FLAG("container-mount-home"),
    FLAG("no-container-mount-home"),
    FLAG("container-remap-root"),
    FLAG("no-container-remap-root"),
    FLAG("container-entrypoint"),
    FLAG("no-container-entrypoint"),
    FLAG("container-writable"),
    FLAG("container-readonly"),
    {NULL, NULL, NULL, 0, 0, NULL},
};
