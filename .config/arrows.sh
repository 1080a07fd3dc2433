#!/bin/sh
# Holds the packages to the arrows of the design: what each may depend on, and nothing else.
set -eu
fail=0
allow() { # package, then a pattern of what it may pull in directly
    package=$1
    pattern=$2
    found=$(cargo tree -p "$package" -e normal --depth 1 --prefix none 2>/dev/null | tail -n +2 | cut -d' ' -f1 | sort -u |
        grep -vxE "$pattern" || true)
    if [ -n "$found" ]; then
        echo "$package must not depend on: $(echo "$found" | tr '\n' ' ')" >&2
        fail=1
    fi
}
allow tuplane-core 'glob|jsonc-parser|serde|serde_json|strsim|thiserror|toml|xxhash-rust'
allow tuplane-expr 'datafusion-.*|hashbrown|regex|thiserror|xxhash-rust|tuplane-core'
allow tuplane-wire 'bincode|bytes|futures|rand|rcgen|rustix|serde|serde_json|tarpc|thiserror|tokio|tokio-rustls|tokio-serde|tokio-util|tracing|tuplane-core'
# core decides and touches nothing.
if grep -rnE 'std::(net|fs|thread)|SystemTime::now|Instant::now|tokio::' core/src; then
    echo "tuplane-core must touch no socket, file, thread or clock" >&2
    fail=1
fi
# Only core/expr names DataFusion, only the codec names bincode.
if grep -rnE 'datafusion' --include=*.rs agent core/src core/wire ctl testbed; then
    echo "only core/expr may name datafusion" >&2
    fail=1
fi
if grep -rnE 'bincode::' --include=*.rs agent core ctl testbed | grep -v 'core/wire/src/codec'; then
    echo "only core/wire/src/codec.rs may name bincode" >&2
    fail=1
fi
exit $fail
