//! What stands behind `/`: text, `!text`, and terms such as `busy>0.8` and `host=a`.

use super::table::{Column, Row, Unit};

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
            (ordered && number(&term.wanted, column.unit).is_none()).then(|| {
                let (sign, wanted) = (compare.sign(), &term.wanted);
                let takes = match column.unit {
                    Unit::Plain => "0.8, 80% or 1.5k",
                    Unit::Bytes => "1.5g, 200m or 64k",
                    Unit::Seconds => "2, 2s, 500ms, 3m or 1h",
                };
                format!("`{wanted}` in `{name}{sign}{wanted}` is no number: {} takes {takes}", column.name)
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
        match (compare, cell.number(), number(&self.wanted, columns[at].unit)) {
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

/// Behind a number, by what is counted; longer ones first.
const PLAIN: &[(&str, f64)] = &[("%", 0.01), ("k", 1e3), ("m", 1e6), ("g", 1e9)];
const BYTES: &[(&str, f64)] = &[
    ("kib", 1024.0),
    ("mib", 1_048_576.0),
    ("gib", 1_073_741_824.0),
    ("k", 1024.0),
    ("m", 1_048_576.0),
    ("g", 1_073_741_824.0),
];
const SECONDS: &[(&str, f64)] = &[("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];

/// A number with its unit: `0.8`, `80%`, `1.5k`, `64k`, `500ms`.
fn number(text: &str, unit: Unit) -> Option<f64> {
    let ends = match unit {
        Unit::Plain => PLAIN,
        Unit::Bytes => BYTES,
        Unit::Seconds => SECONDS,
    };
    let found = ends.iter().find_map(|(end, times)| Some((text.strip_suffix(end)?, *times)));
    let (digits, times) = found.unwrap_or((text, 1.0));
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
    fn ages_count_in_seconds_bytes_in_kib_and_a_mark_is_no_part_of_a_name() {
        let columns =
            [column("agent", ""), column("age", "").of(Unit::Seconds), column("memory", "").of(Unit::Bytes)];
        let cells = |age| {
            vec![
                Cell::Marked { mark: "*", text: "a".into(), also: "rack-1".into() },
                age,
                Cell::Bytes(2 << 20),
            ]
        };
        let takes = |filter: &str, age: Cell| Filter::new(filter).takes(&columns, &Row::new("0", cells(age)));
        for yes in ["age>2", "age>2s", "age>2500ms", "age<1m", "memory>=2m", "memory=2048k", "agent=a", "*a"]
        {
            assert!(takes(yes, Cell::Age(3000)), "{yes}");
        }
        for no in ["age>3", "age>1h", "memory>2m", "agent=*a", "agent!=a", "agent!=rack-1"] {
            assert!(!takes(no, Cell::Age(3000)), "{no}");
        }
        assert!(takes("age>2h", Cell::Ranked("gone".into(), f64::INFINITY)));
        let fault = Filter::new("age>2k").fault(&columns).unwrap();
        assert!(fault.contains("500ms"), "{fault}");
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
