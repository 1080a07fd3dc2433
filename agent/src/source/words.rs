//! `words`: lines of made-up words drawn by Zipf's law.

use std::sync::Arc;

use tuplane_expr::arrow::array::{RecordBatch, StringBuilder};

use super::generate::{Arranged, Series};
use super::{BATCH_BYTES, SourceError};

/// Consonant and vowel make a syllable; words are numbers written in syllables, so short ones come first.
const CONSONANTS: &[u8] = b"tnsrldmkpbgvfz";
const VOWELS: &[u8] = b"eaoiu";

/// The most words of a dictionary: it is held in memory.
const MOST_WORDS: u32 = 10_000_000;

/// Lines of words. A line depends on the seed and its own number alone, so that any number of
/// instances makes the same lines.
pub(super) struct Words {
    columns: Arranged,
    /// Chances of the words up to and including each rank.
    chances: Vec<f64>,
    /// All words in a row, and where each ends.
    text: String,
    ends: Vec<usize>,
    per_line: u32,
    seed: u64,
}

impl Words {
    /// A dictionary of `words` words, of which rank r is drawn in proportion to 1 / r^`exponent`.
    pub(super) fn new(
        words: u32,
        exponent: f64,
        per_line: u32,
        seed: u64,
        columns: Arranged,
    ) -> Result<Self, SourceError> {
        if words == 0 || words > MOST_WORDS {
            return Err(SourceError::Refused(format!("`words` must be 1 to {MOST_WORDS}, not {words}")));
        }
        if !(exponent.is_finite() && exponent >= 0.0) {
            return Err(SourceError::Refused(format!("`exponent` must be 0 or above, not {exponent}")));
        }
        let mut chances = Vec::with_capacity(words as usize);
        let mut sum = 0.0;
        for rank in 1..=words {
            sum += f64::from(rank).powf(-exponent);
            chances.push(sum);
        }
        for chance in &mut chances {
            *chance /= sum;
        }
        let (mut text, mut ends) = (String::new(), Vec::with_capacity(words as usize));
        for rank in 0..words as usize {
            spell(rank, &mut text);
            ends.push(text.len());
        }
        Ok(Self { columns, chances, text, ends, per_line, seed })
    }

    fn word(&self, rank: usize) -> &str {
        let start = rank.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[start..self.ends[rank]]
    }

    fn line(&self, row: u64, line: &mut String) {
        let mut random = SplitMix::new(self.seed, row);
        line.clear();
        for place in 0..self.per_line {
            if place > 0 {
                line.push(' ');
            }
            let draw = random.unit();
            let rank = self.chances.partition_point(|chance| *chance <= draw).min(self.ends.len() - 1);
            line.push_str(self.word(rank));
        }
    }
}

impl Series for Words {
    fn rows(&mut self, first: u64, step: u64, count: usize) -> Result<RecordBatch, SourceError> {
        let mut lines = StringBuilder::with_capacity(count, count * self.per_line as usize * 6);
        let (mut line, mut bytes) = (String::new(), 0);
        for row in 0..count as u64 {
            self.line(first + row * step, &mut line);
            lines.append_value(&line);
            bytes += line.len();
            if bytes >= BATCH_BYTES {
                break;
            }
        }
        self.columns.batch(&[Arc::new(lines.finish())])
    }
}

/// Appends the word of a rank: 70 of one syllable, 4,900 of two, and so on.
fn spell(rank: usize, text: &mut String) {
    let syllables = CONSONANTS.len() * VOWELS.len();
    if rank >= syllables {
        spell(rank / syllables - 1, text);
    }
    let syllable = rank % syllables;
    text.push(char::from(CONSONANTS[syllable % CONSONANTS.len()]));
    text.push(char::from(VOWELS[syllable / CONSONANTS.len()]));
}

/// `SplitMix64`: a fixed, public algorithm, so that a seed means the same lines in every version.
struct SplitMix(u64);

impl SplitMix {
    fn new(seed: u64, row: u64) -> Self {
        // Rows start far apart: their streams must not be shifted copies of each other.
        Self(mix(seed ^ 0x6a09_e667_f3bc_c909) ^ mix(row.wrapping_add(1)))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// From 0 up to, not including, 1.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use tuplane_expr::arrow::datatypes::{DataType, Field, Schema};

    fn words(words: u32, exponent: f64, per_line: u32) -> Result<Words, SourceError> {
        let schema = Arc::new(Schema::new(vec![Field::new("line", DataType::Utf8, false)]));
        Words::new(words, exponent, per_line, 7, Arranged::new(&schema, &["line"])?)
    }

    #[test]
    fn dictionary_has_distinct_words_short_ones_first() {
        let made = words(6000, 1.0, 1).unwrap();
        let all: Vec<&str> = (0..6000).map(|rank| made.word(rank)).collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 6000);
        assert!(all.is_sorted_by_key(|word| word.len()));
        assert_eq!(
            (all[0], all[69].len(), all[70].len(), all[4969].len(), all[4970].len()),
            ("te", 2, 4, 4, 6)
        );
    }

    #[test]
    fn draws_follow_zipf() {
        let made = words(100, 1.0, 10).unwrap();
        let mut counts = std::collections::BTreeMap::<String, u32>::new();
        let mut line = String::new();
        for row in 0..20_000 {
            made.line(row, &mut line);
            assert_eq!(line.split(' ').count(), 10);
            for word in line.split(' ') {
                *counts.entry(word.to_owned()).or_default() += 1;
            }
        }
        // The chances of ranks 1, 2 and 10 among 100 are 1, 1/2 and 1/10 over the harmonic number 5.18738.
        for (rank, share) in [(0, 0.192_776), (1, 0.096_388), (9, 0.019_278)] {
            let drawn = f64::from(counts[made.word(rank)]) / 200_000.0;
            assert!((drawn / share - 1.0).abs() < 0.05, "rank {rank}: {drawn} for {share}");
        }
    }

    #[test]
    fn refuses_what_has_no_meaning() {
        assert!(words(0, 1.0, 1).is_err());
        assert!(words(5, f64::NAN, 1).is_err());
        assert!(words(5, -1.0, 1).is_err());
    }
}
