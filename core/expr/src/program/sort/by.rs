//! One entry of `by`: `expr asc|desc [nulls first|last]`.

use datafusion_common::arrow::compute::SortOptions;
use tuplane_core::fault::At;
use tuplane_core::job::Text;

/// The expression, and how its values are ordered. As in `PostgreSQL` null is the greatest value unless the
/// entry says where it stands: last with `asc`, first with `desc`.
pub(super) fn parse(text: &Text) -> (Text, SortOptions) {
    let (rest, nulls_first) = match strip(&text.value, &["nulls", "first"]) {
        Some(rest) => (rest, Some(true)),
        None => match strip(&text.value, &["nulls", "last"]) {
            Some(rest) => (rest, Some(false)),
            None => (text.value.as_str(), None),
        },
    };
    let (rest, descending) = match strip(rest, &["desc"]) {
        Some(rest) => (rest, true),
        None => (strip(rest, &["asc"]).unwrap_or(rest), false),
    };
    // The place says by its length what quotes the text has, so it shrinks with the text.
    let cut = (text.value.len() - rest.len()) as u32;
    let at = At { len: text.at.len.saturating_sub(cut), ..text.at };
    let options = SortOptions { descending, nulls_first: nulls_first.unwrap_or(descending) };
    (Text::new(rest.to_owned(), at), options)
}

/// What stands before these words, if they end the text and something does.
fn strip<'a>(text: &'a str, words: &[&str]) -> Option<&'a str> {
    let mut rest = text.trim_end();
    for word in words.iter().rev() {
        let start = rest.len().checked_sub(word.len())?;
        let end = rest.get(start..)?;
        let before = rest.get(..start)?;
        if !end.eq_ignore_ascii_case(word)
            || !before.ends_with(|c: char| c.is_whitespace() || c == ')' || c == '"')
        {
            return None;
        }
        rest = before.trim_end();
    }
    (!rest.trim().is_empty()).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (String, bool, bool) {
        let (expr, options) = parse(&Text::nowhere(text.to_owned()));
        (expr.value, options.descending, options.nulls_first)
    }

    #[test]
    fn words_at_the_end_say_the_order() {
        let of = |expr: &str, descending, nulls_first| (expr.to_owned(), descending, nulls_first);
        assert_eq!(parsed("a"), of("a", false, false));
        assert_eq!(parsed("a asc"), of("a", false, false));
        assert_eq!(parsed("a + b DESC"), of("a + b", true, true));
        assert_eq!(parsed("lower(a)desc  nulls  LAST "), of("lower(a)", true, false));
        assert_eq!(parsed("\"a b\" nulls first"), of("\"a b\"", false, true));
        // A column may be called so.
        assert_eq!(parsed("desc"), of("desc", false, false));
        assert_eq!(parsed("desc desc"), of("desc", true, true));
        assert_eq!(parsed("my_desc"), of("my_desc", false, false));
        assert_eq!(parsed("first"), of("first", false, false));
    }

    #[test]
    fn the_place_stays_that_of_the_expression() {
        let at = At { line: 3, column: 7, offset: 40, len: 8 };
        let (expr, _) = parse(&Text::new("x desc".to_owned(), at));
        assert_eq!((expr.at.len, expr.value.len()), (3, 1));
    }
}
