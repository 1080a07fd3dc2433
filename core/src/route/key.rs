//! Key hashes: a canonical form of a key's values, its XXH3-64, and the key partition it falls into.
//!
//! This is part of the wire and snapshot format: the golden values in the tests must never change.

use xxhash_rust::xxh3::xxh3_64;

const NULL: u8 = 0;
const INTEGER: u8 = 1;
const FLOAT: u8 = 2;
const DECIMAL: u8 = 3;
const TIME: u8 = 4;
const TEXT: u8 = 5;
const BYTES: u8 = 6;

/// The canonical form of one key, column after column.
///
/// Each value starts with a byte for its class; text and bytes carry their length, so that
/// `("ab", "c")` and `("a", "bc")` differ. Two keys are the same key exactly if their columns, cast to
/// common types, have the same form.
#[derive(Debug, Clone, Default)]
pub struct KeyBuf {
    bytes: Vec<u8>,
}

impl KeyBuf {
    /// Forgets the key, keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// A null: a key of its own, as in SQL's `GROUP BY`.
    pub fn push_null(&mut self) {
        self.bytes.push(NULL);
    }

    /// An integer of any width, or a boolean as 0 or 1.
    pub fn push_i64(&mut self, value: i64) {
        self.push(INTEGER, &value.to_le_bytes());
    }

    /// A float of any width. There is one zero and one NaN.
    pub fn push_f64(&mut self, value: f64) {
        let value = if value.is_nan() {
            f64::NAN
        } else if value == 0.0 {
            0.0
        } else {
            value
        };
        self.push(FLOAT, &value.to_bits().to_le_bytes());
    }

    /// A decimal, `value / 10^scale`. Equal numbers have one form whatever their scale.
    pub fn push_decimal(&mut self, mut value: i128, mut scale: i8) {
        if value == 0 {
            scale = 0;
        }
        while value != 0 && scale > i8::MIN && value % 10 == 0 {
            value /= 10;
            scale -= 1;
        }
        self.push(DECIMAL, &value.to_le_bytes());
        self.bytes.extend_from_slice(&scale.to_le_bytes());
    }

    /// A date, time of day, or time stamp: nanoseconds, UTC.
    pub fn push_time(&mut self, nanoseconds: i64) {
        self.push(TIME, &nanoseconds.to_le_bytes());
    }

    /// Text, as it is.
    pub fn push_text(&mut self, text: &str) {
        self.push_with_length(TEXT, text.as_bytes());
    }

    /// Bytes, as they are.
    pub fn push_bytes(&mut self, bytes: &[u8]) {
        self.push_with_length(BYTES, bytes);
    }

    /// The hash of what was pushed since the last [`clear`](Self::clear).
    pub fn hash(&self) -> u64 {
        xxh3_64(&self.bytes)
    }

    fn push(&mut self, class: u8, bytes: &[u8]) {
        self.bytes.push(class);
        self.bytes.extend_from_slice(bytes);
    }

    fn push_with_length(&mut self, class: u8, bytes: &[u8]) {
        // A row is bounded far below 4 GiB (`max_row`), so the length fits.
        self.push(class, &(bytes.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(bytes);
    }
}

/// The hash of a key that is one integer: what [`KeyBuf`] gives, without the buffer.
pub fn hash_i64(value: i64) -> u64 {
    let mut form = [INTEGER; 9];
    form[1..].copy_from_slice(&value.to_le_bytes());
    xxh3_64(&form)
}

/// The partition of a key's hash, below `partitions`: the hash's upper half scaled, without a division.
pub fn partition(hash: u64, partitions: u16) -> u16 {
    (((hash >> 32) * u64::from(partitions)) >> 32) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hash(push: impl FnOnce(&mut KeyBuf)) -> u64 {
        let mut key = KeyBuf::default();
        push(&mut key);
        key.hash()
    }

    #[test]
    fn golden_values() {
        let cases: [(&str, u64); 10] = [
            ("null", hash(KeyBuf::push_null)),
            ("0", hash(|k| k.push_i64(0))),
            ("-1", hash(|k| k.push_i64(-1))),
            ("1.5", hash(|k| k.push_f64(1.5))),
            ("12.50", hash(|k| k.push_decimal(1250, 2))),
            ("time", hash(|k| k.push_time(1_700_000_000_000_000_000))),
            ("text", hash(|k| k.push_text("stream"))),
            ("empty text", hash(|k| k.push_text(""))),
            ("bytes", hash(|k| k.push_bytes(b"stream"))),
            (
                "two columns",
                hash(|k| {
                    k.push_text("a");
                    k.push_i64(7);
                }),
            ),
        ];
        let got: Vec<String> = cases
            .iter()
            .map(|(name, hash)| format!("{name} {hash:#018x} {}", partition(*hash, 271)))
            .collect();
        assert_eq!(got, GOLDEN);
    }

    /// Name, hash, partition of 271. Old snapshots and running peers depend on them.
    const GOLDEN: [&str; 10] = [
        "null 0xc44bdff4074eecdb 207",
        "0 0x313c2dd2ec996e80 52",
        "-1 0x53a5f4bc2fc0168c 88",
        "1.5 0x360276011e12cf43 57",
        "12.50 0x1e29caadf365851e 31",
        "time 0x81dbef781aa90758 137",
        "text 0xc4e36935ac4e0a80 208",
        "empty text 0x2db60605234d7cb9 48",
        "bytes 0x352c1321db48270d 56",
        "two columns 0x27ad23b7996ef3e5 42",
    ];

    #[test]
    fn one_zero_and_one_nan() {
        assert_eq!(hash(|k| k.push_f64(0.0)), hash(|k| k.push_f64(-0.0)));
        assert_eq!(hash(|k| k.push_f64(f64::NAN)), hash(|k| k.push_f64(-f64::NAN)));
        assert_ne!(hash(|k| k.push_f64(0.0)), hash(|k| k.push_f64(f64::NAN)));
    }

    #[test]
    fn classes_and_column_borders_count() {
        assert_ne!(hash(|k| k.push_i64(0)), hash(|k| k.push_time(0)));
        assert_ne!(hash(|k| k.push_text("a")), hash(|k| k.push_bytes(b"a")));
        assert_ne!(hash(KeyBuf::push_null), hash(|k| k.push_text("")));
        let pair = |a: &str, b: &str| {
            hash(|k| {
                k.push_text(a);
                k.push_text(b);
            })
        };
        assert_ne!(pair("ab", "c"), pair("a", "bc"));
    }

    #[test]
    fn equal_decimals_have_one_form() {
        assert_eq!(hash(|k| k.push_decimal(1250, 2)), hash(|k| k.push_decimal(125, 1)));
        assert_eq!(hash(|k| k.push_decimal(0, 5)), hash(|k| k.push_decimal(0, 0)));
        assert_ne!(hash(|k| k.push_decimal(125, 2)), hash(|k| k.push_decimal(125, 1)));
    }

    proptest! {
        #[test]
        fn short_cut_for_integers(value: i64) {
            prop_assert_eq!(hash_i64(value), hash(|k| k.push_i64(value)));
        }

        #[test]
        fn partitions_are_in_range(hash: u64, partitions in 1u16..) {
            prop_assert!(partition(hash, partitions) < partitions);
        }
    }

    #[test]
    fn partitions_are_even() {
        let mut rows = [0u32; 271];
        for value in 0..271_000 {
            rows[usize::from(partition(hash_i64(value), 271))] += 1;
        }
        assert!(rows.iter().all(|n| (850..1150).contains(n)), "{rows:?}");
    }

    #[test]
    fn a_cleared_buffer_is_a_new_one() {
        let mut key = KeyBuf::default();
        key.push_text("old");
        key.clear();
        key.push_i64(3);
        assert_eq!(key.hash(), hash_i64(3));
    }
}
