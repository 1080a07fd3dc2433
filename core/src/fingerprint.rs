//! A name for bytes: equal names, equal bytes, for builds that are compared and copied.

use xxhash_rust::xxh3::Xxh3Default;

/// Takes bytes in pieces, and names the whole.
#[derive(Clone, Default)]
pub struct Fingerprint(Xxh3Default);

impl std::fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Fingerprint(..)")
    }
}

impl Fingerprint {
    /// The next piece.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// XXH3-128 of all pieces as 32 hexadecimal digits. It tells builds apart; it is no defence against
    /// somebody who makes two of them alike.
    pub fn name(&self) -> String {
        format!("{:032x}", self.0.digest128())
    }
}

/// XXH3-64 of these pieces, one after another: tells bytes that were damaged on their way, not forged ones.
pub fn checksum(pieces: &[&[u8]]) -> u64 {
    let mut whole = Xxh3Default::default();
    for piece in pieces {
        whole.update(piece);
    }
    whole.digest()
}

/// The name of bytes that are at hand.
pub fn fingerprint(bytes: &[u8]) -> String {
    let mut whole = Fingerprint::default();
    whole.update(bytes);
    whole.name()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_xxh3_128_however_the_bytes_come() {
        assert_eq!(fingerprint(b""), "99aa06d3014798d86001c324468d497f");
        assert_ne!(fingerprint(b"a"), fingerprint(b"b"));
        let bytes: Vec<u8> = (0..100_000u32).map(|n| n as u8).collect();
        let mut pieces = Fingerprint::default();
        bytes.chunks(777).for_each(|piece| pieces.update(piece));
        assert_eq!(pieces.name(), fingerprint(&bytes));
    }

    #[test]
    fn a_checksum_is_xxh3_64_however_the_bytes_come() {
        assert_eq!(checksum(&[]), 0x2d06_8005_38d3_94c2);
        assert_eq!(checksum(&[b"ab", b"", b"c"]), checksum(&[b"abc"]));
        assert_ne!(checksum(&[b"ab"]), checksum(&[b"ba"]));
    }
}
