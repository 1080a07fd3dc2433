//! What stands behind `/`: text, `!text`, and terms such as `busy>0.8` and `host=a`.

use super::table::{Column, Row};

/// A filter: all of its terms must hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Filter {
    /// As it was typed.
    pub(crate) text: String,
    terms: Vec<Term>,
}

#[derive(Debug, Clone, PartialEq)]
struct Term {
    inverse: bool,
    column: Option<(String, Compare)>,
    wanted: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compare {
    Equal,
    Differs,
    Contains,
    Above,
    AtLeast,
    Below,
    AtMost,
}

/// Longer signs first.
const SIGNS: [(&str, Compare); 7] = [
    (">=", Compare::AtLeast),
    ("<=", Compare::AtMost),
    ("!=", Compare::Differs),
    (">", Compare::Above),
    ("<", Compare::Below),
    ("=", Compare::Equal),
    ("~", Compare::Contains),
];

impl Filter {
    /// Reads what was typed; anything is a filter.
    pub(crate) fn new(text: &str) -> Self {
        let terms = text.split_whitespace().filter_map(term).collect();
        Self { text: text.trim().to_owned(), terms }
    }

    /// Nothing is left out.
    pub(crate) fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Why it can hold for no row, whatever the rows are: a column that the table does not have, or a number
    /// that is none.
    pub(crate) fn fault(&self, columns: &[Column]) -> Option<String> {
        self.terms.iter().find_map(|term| {
            let (name, compare) = term.column.as_ref()?;
            let Some(column) = columns.iter().find(|column| column.is_called(name)) else {
                return Some(super::table::no_column(name, columns));
            };
            let ordered =
                matches!(compare, Compare::Above | Compare::AtLeast | Compare::Below | Compare::AtMost);
            (ordered && number(&term.wanted).is_none()).then(|| {
                let (sign, wanted) = (compare.sign(), &term.wanted);
                format!(
                    "`{wanted}` in `{name}{sign}{wanted}` is no number: {} takes 0.8, 80% or 1.5k",
                    column.name
                )
            })
        })
    }

    /// The row stays. Columns that the table does not have are looked for as text.
    pub(crate) fn takes(&self, columns: &[Column], row: &Row) -> bool {
        self.terms.iter().all(|term| term.holds(columns, row) != term.inverse)
    }
}

fn term(text: &str) -> Option<Term> {
    let (inverse, rest) = match text.strip_prefix('!') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    if rest.is_empty() {
        return None;
    }
    // The sign that stands first counts.
    let found = SIGNS
        .iter()
        .filter_map(|(sign, compare)| Some((rest.find(sign)?, *sign, *compare)))
        .min_by_key(|(at, sign, _)| (*at, std::cmp::Reverse(sign.len())));
    Some(match found {
        Some((at, sign, compare)) if at > 0 => {
            let (column, wanted) = (rest[..at].to_lowercase(), rest[at + sign.len()..].to_lowercase());
            Term { inverse, column: Some((column, compare)), wanted }
        }
        _ => Term { inverse, column: None, wanted: rest.to_lowercase() },
    })
}

impl Term {
    fn holds(&self, columns: &[Column], row: &Row) -> bool {
        let Some((name, compare)) = &self.column else { return row.contains(&self.wanted) };
        let Some(at) = columns.iter().position(|column| column.is_called(name)) else {
            return row.contains(&format!("{name}{}{}", compare.sign(), self.wanted));
        };
        let Some(cell) = row.cells.get(at) else { return false };
        let text = cell.text().to_lowercase();
        match (compare, cell.number(), number(&self.wanted)) {
            (Compare::Contains, ..) => text.contains(&self.wanted),
            (Compare::Above, Some(is), Some(than)) => is > than,
            (Compare::AtLeast, Some(is), Some(than)) => is >= than,
            (Compare::Below, Some(is), Some(than)) => is < than,
            (Compare::AtMost, Some(is), Some(than)) => is <= than,
            (Compare::Equal, Some(is), Some(than)) => (is - than).abs() < 1e-9,
            (Compare::Differs, Some(is), Some(than)) => (is - than).abs() >= 1e-9,
            (Compare::Equal, ..) => text == self.wanted || cell.also().to_lowercase() == self.wanted,
            (Compare::Differs, ..) => text != self.wanted && cell.also().to_lowercase() != self.wanted,
            // A value that is not known is neither above nor below anything.
            _ => false,
        }
    }
}

impl Compare {
    fn sign(self) -> &'static str {
        SIGNS.iter().find(|(_, compare)| *compare == self).map_or("", |(sign, _)| sign)
    }
}

/// `0.8`, `80%`, `1.5k`, `2M`.
fn number(text: &str) -> Option<f64> {
    let (digits, times) = match text.char_indices().next_back()? {
        (at, '%') => (&text[..at], 0.01),
        (at, 'k') => (&text[..at], 1e3),
        (at, 'm') => (&text[..at], 1e6),
        (at, 'g') => (&text[..at], 1e9),
        _ => (text, 1.0),
    };
    digits.parse::<f64>().ok().filter(|value| value.is_finite()).map(|value| value * times)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::model::table::{Cell, column};

    fn takes(filter: &str) -> bool {
        let columns = [column("instance", ""), column("busy", ""), column("agent", "").also("host")];
        let cells = vec![
            Cell::Text("work#0".into()),
            Cell::Share(Some(0.91)),
            Cell::Named { text: "a".into(), also: "rack-1".into() },
        ];
        Filter::new(filter).takes(&columns, &Row::new("0", cells))
    }

    #[test]
    fn terms_are_text_inverse_text_or_a_column_compared() {
        for yes in
            ["", "WORK", "!sink", "busy>0.8", "busy>80%", "busy<=0.91", "host=a", "host=rack-1", "agent!=b"]
        {
            assert!(takes(yes), "{yes}");
        }
        for no in ["sink", "!work", "busy>0.95", "!busy>0.8", "host=b", "busy>0.8 host=b", "agent!=rack-1"] {
            assert!(!takes(no), "{no}");
        }
        let columns = [column("busy", "").right(), column("agent", "").also("host")];
        let fault = |text: &str| Filter::new(text).fault(&columns);
        assert!(fault("nonsense>1").unwrap().contains("there is no column `nonsense`"));
        assert!(fault("host=a !nonsense=1").unwrap().contains("there are: busy, agent"));
        assert!(fault("busy>abc").unwrap().contains("`abc`") && fault("busy>").is_some());
        assert_eq!(fault("text !text busy>=80% HOST=a agent~x"), None);
        assert!(takes("instance~rk#") && takes("!") && !takes("nothing=1") && takes("!busy>x"));
    }
}
