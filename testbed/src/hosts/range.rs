//! Ranges in a word: `node[0-9]`, `node[01:10]`, `node[1-3,7]`, leading zeros kept.

use super::MOST;

/// Why a range cannot be written out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RangeError {
    pub(super) message: String,
}

fn error(message: impl Into<String>) -> RangeError {
    RangeError { message: message.into() }
}

/// The most ranges of one word.
const RANGES: usize = 8;

/// All words that a word with ranges stands for, in order; the last range runs fastest.
pub(super) fn expand(word: &str) -> Result<Vec<String>, RangeError> {
    if word.matches('[').nth(RANGES).is_some() {
        return Err(error(format!("more than {RANGES} ranges in a word")));
    }
    let Some(open) = word.find('[') else {
        return if word.contains(']') { Err(error("`]` without `[`")) } else { Ok(vec![word.to_owned()]) };
    };
    let Some(close) = word[open..].find(']').map(|at| open + at) else {
        return Err(error("`[` without `]`"));
    };
    let values = numbers(&word[open + 1..close])?;
    let rests = expand(&word[close + 1..])?;
    if values.len().saturating_mul(rests.len()) > MOST {
        return Err(error(format!("more than {MOST} hosts")));
    }
    let prefix = &word[..open];
    if prefix.contains(']') {
        return Err(error("`]` without `[`"));
    }
    Ok(values
        .iter()
        .flat_map(|value| rests.iter().map(move |rest| format!("{prefix}{value}{rest}")))
        .collect())
}

/// `1-3,7` as 1, 2, 3, 7.
fn numbers(text: &str) -> Result<Vec<String>, RangeError> {
    let mut values = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once(['-', ':']).unwrap_or((part, part));
        let (low, high) = (number(first)?, number(last)?);
        if low > high {
            return Err(error(format!("{first} is more than {last}")));
        }
        if (high - low) as usize + values.len() >= MOST {
            return Err(error(format!("more than {MOST} hosts")));
        }
        let padded = first.len() > 1 && first.starts_with('0');
        let width = if padded { first.len() } else { 0 };
        values.extend((low..=high).map(|n| format!("{n:0width$}")));
    }
    Ok(values)
}

fn number(text: &str) -> Result<u32, RangeError> {
    let digits = !text.is_empty() && text.len() <= 9 && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| digits).ok_or_else(|| error(format!("`{text}` is no number of a range")))
}

/// The parts between commas that are in no brackets, each with the byte behind its comma.
pub(super) fn split_outside_brackets(text: &str) -> Vec<(&str, usize)> {
    let mut parts = Vec::new();
    let (mut start, mut depth) = (0, 0u32);
    for (at, c) in text.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push((&text[start..at], at + 1));
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push((&text[start..], text.len()));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(word: &str) -> Vec<String> {
        expand(word).unwrap()
    }

    #[test]
    fn ranges_are_inclusive_and_keep_leading_zeros() {
        assert_eq!(all("node[0-2]"), ["node0", "node1", "node2"]);
        assert_eq!(all("n[08:11].x"), ["n08.x", "n09.x", "n10.x", "n11.x"]);
        assert_eq!(all("n[1-3,7]"), ["n1", "n2", "n3", "n7"]);
        assert_eq!(all("r[1-2]n[1-2]"), ["r1n1", "r1n2", "r2n1", "r2n2"]);
        assert_eq!(all("n[007]"), ["n007"]);
        assert_eq!(all("plain"), ["plain"]);
    }

    #[test]
    fn what_is_no_range_is_said() {
        for bad in
            ["n[", "n]", "n[]", "n[a-b]", "n[3-1]", "n[1-99999]", "n[1-2", "n[1-1000][1-1000]", "a]b[1]"]
        {
            assert!(expand(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_word_of_very_many_ranges_is_refused() {
        assert_eq!(all(&"[1]".repeat(RANGES)), ["1".repeat(RANGES)]);
        for many in [RANGES + 1, 1_000_000] {
            assert!(expand(&"[1]".repeat(many)).unwrap_err().message.contains("more than 8 ranges"));
        }
    }

    #[test]
    fn commas_in_brackets_do_not_part_a_list() {
        let parts: Vec<&str> = split_outside_brackets("a,b[1,2],c").into_iter().map(|(p, _)| p).collect();
        assert_eq!(parts, ["a", "b[1,2]", "c"]);
    }
}
