//! The jobs that ship with the product, as they lie in `testbed/jobs`: file name and text.

/// The demo: hot items of an auction house.
pub const HOT_ITEMS: (&str, &str) =
    ("nexmark-hot-items.toml", include_str!("../jobs/nexmark-hot-items.toml"));
