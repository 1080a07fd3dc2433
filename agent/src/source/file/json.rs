//! JSON objects become rows: every syntax error is found, members that are no column are passed over.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::super::columns::{Cell, Cells, Columns, Takes};

/// Reads objects into the cells of one row at a time.
pub(super) struct Objects {
    places: HashMap<String, usize>,
    takes: Vec<Wanted>,
    cells: Vec<Cell>,
    texts: String,
    /// Values of the row's lists.
    items: Vec<Cell>,
    /// Why the object read last is no row, though it is valid JSON.
    problem: Option<String>,
    /// Some column takes numbers as they are written, whose digits a float may not hold.
    exact: bool,
    /// Then: where in the text the next number is looked for.
    at: usize,
}

/// What a column takes.
struct Wanted {
    takes: Takes,
    /// It takes lists of that.
    list: bool,
    /// The type as the job file writes it.
    named: String,
}

/// Why a document gives fewer rows than it has values.
pub(super) struct Unfit {
    /// Line, for a fault of syntax, else 1.
    pub(super) line: u64,
    /// What is wrong.
    pub(super) why: String,
}

impl Objects {
    /// For these columns.
    pub(super) fn new(columns: &Columns) -> Self {
        let fields = columns.schema().fields();
        let takes: Vec<Wanted> = (0..fields.len())
            .map(|place| columns.takes(place))
            .map(|(takes, list, named)| Wanted { takes, list, named: named.to_owned() })
            .collect();
        Self {
            places: fields.iter().enumerate().map(|(place, field)| (field.name().clone(), place)).collect(),
            exact: takes.iter().any(|wanted| wanted.takes == Takes::Number),
            at: 0,
            takes,
            cells: vec![Cell::Null; fields.len()],
            texts: String::new(),
            items: Vec::new(),
            problem: None,
        }
    }

    /// Appends the row of a line that holds one object.
    pub(super) fn push(&mut self, text: &str, line: u64, columns: &mut Columns) -> Result<(), String> {
        let mut json = serde_json::Deserializer::from_str(text);
        self.at = 0;
        let read = Value::object(self, text).deserialize(&mut json).and_then(|()| json.end());
        read.map_err(|cause| in_line(&cause))?;
        self.append(line, columns)
    }

    /// Appends the rows of a document: one object, or a list of objects. A fault of syntax leaves none.
    pub(super) fn push_document(&mut self, text: &str, columns: &mut Columns) -> Vec<Unfit> {
        let mut unfit = Vec::new();
        let mut json = serde_json::Deserializer::from_str(text);
        self.at = 0;
        let document = Document { objects: self, text, columns: &mut *columns, unfit: &mut unfit };
        if let Err(cause) = document.deserialize(&mut json).and_then(|()| json.end()) {
            columns.discard();
            unfit.clear();
            unfit.push(Unfit { line: cause.line() as u64, why: in_line(&cause) });
        }
        unfit
    }

    fn append(&mut self, line: u64, columns: &mut Columns) -> Result<(), String> {
        if let Some(problem) = self.problem.take() {
            return Err(problem);
        }
        columns.push_cells(line, &self.cells, Cells { texts: &self.texts, items: &self.items });
        Ok(())
    }

    fn clear(&mut self) {
        self.cells.fill(Cell::Null);
        self.texts.clear();
        self.items.clear();
        self.problem = None;
    }

    /// Takes a number: as it is written, where a column wants that.
    fn take_number(&mut self, target: Target, text: &str, cell: Cell, is: &str) {
        if !self.exact {
            return self.take(target, cell, is);
        }
        let written = self.next_number(text);
        let as_written = match target {
            Target::Column(place) | Target::ListOf(place) => self.takes[place].takes == Takes::Number,
            Target::Row => false,
        };
        let cell = if as_written { self.keep(&plain(written)) } else { cell };
        self.take(target, cell, is);
    }

    /// The next number of a text. The parser hands over the numbers in the order of the text, and none of them
    /// is left out, so that this is the one that it has just read.
    fn next_number<'t>(&mut self, text: &'t str) -> &'t str {
        let bytes = text.as_bytes();
        let mut at = self.at;
        while let Some(byte) = bytes.get(at) {
            match byte {
                b'-' | b'0'..=b'9' => break,
                b'"' => at = string_end(bytes, at),
                _ => at += 1,
            }
        }
        let more = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
        let length = bytes.get(at..).map_or(0, |rest| rest.iter().take_while(|byte| more(byte)).count());
        self.at = at + length;
        text.get(at..self.at).unwrap_or_default()
    }

    /// A text for the row that is being read.
    fn keep(&mut self, text: &str) -> Cell {
        let start = self.texts.len();
        self.texts.push_str(text);
        Cell::Text(start..self.texts.len())
    }

    /// Takes a value for the row itself, where only an object will do, for a column, or for the list of one.
    fn take(&mut self, target: Target, cell: Cell, is: &str) {
        let (place, in_list) = match target {
            Target::Row => {
                self.problem = Some(format!("{is} where an object is expected"));
                return;
            }
            Target::Column(place) => (place, false),
            Target::ListOf(place) => (place, true),
        };
        let Wanted { takes, list, named } = &self.takes[place];
        let is_list = matches!(cell, Cell::List(_));
        let shape = matches!(cell, Cell::Null) || *list == (in_list || is_list) && !(in_list && is_list);
        let fits = shape
            && (is_list
                || matches!(
                    (takes, &cell),
                    (_, Cell::Null)
                        | (Takes::Bool, Cell::Bool(_))
                        | (Takes::Int | Takes::Float, Cell::Int(_))
                        | (Takes::Float, Cell::Float(_))
                        | (Takes::Text | Takes::Number | Takes::Cast, Cell::Text(_))
                ));
        match (fits, in_list) {
            (true, true) => self.items.push(cell),
            (true, false) => self.cells[place] = cell,
            (false, _) if self.problem.is_none() => {
                let within = if in_list { " in a list" } else { "" };
                self.problem = Some(format!("{is}{within} where type {named} is expected"));
            }
            (false, _) => {}
        }
    }
}

/// A number without an exponent, which a cast to a decimal does not know.
fn plain(number: &str) -> Cow<'_, str> {
    /// A decimal has at most 76 digits behind its point.
    const MOST_ZEROS: i64 = 100;
    let Some((mantissa, exponent)) = number.split_once(['e', 'E']) else { return Cow::Borrowed(number) };
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |mantissa| ("-", mantissa));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    let first = whole.len() as i64 - (whole.len() + fraction.len() - digits.len()) as i64;
    // Where the point stands, counted from the first digit that is not 0. The parser has found the number to be a
    // finite float, so it is no further to the right than a few hundred digits.
    let point = first.saturating_add(exponent.parse().unwrap_or(i64::MIN));
    if digits.is_empty() || point < -MOST_ZEROS {
        return Cow::Borrowed("0");
    }
    Cow::Owned(match usize::try_from(point) {
        Err(_) | Ok(0) => format!("{sign}0.{}{digits}", "0".repeat(point.unsigned_abs() as usize)),
        Ok(point) if point >= digits.len() => format!("{sign}{digits}{}", "0".repeat(point - digits.len())),
        Ok(point) => format!("{sign}{}.{}", &digits[..point], &digits[point..]),
    })
}

/// Where a string ends that begins at `start`.
fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    loop {
        match bytes.get(at) {
            Some(b'\\') => at += 2,
            Some(b'"') | None => return at + 1,
            Some(_) => at += 1,
        }
    }
}

/// `serde_json` counts lines from the start of its text: of a single line only the column says something.
fn in_line(cause: &serde_json::Error) -> String {
    let text = cause.to_string();
    let what = text.rfind(" at line ").map_or(text.as_str(), |end| &text[..end]);
    let kind = if cause.is_data() { "" } else { "not JSON: " };
    format!("{kind}{what} (column {})", cause.column())
}

/// Whom a value is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    Row,
    Column(usize),
    ListOf(usize),
}

/// Reads one value: a row, a column's, or one in the list of a column.
struct Value<'a> {
    objects: &'a mut Objects,
    /// What is being read.
    text: &'a str,
    target: Target,
}

impl<'a> Value<'a> {
    fn object(objects: &'a mut Objects, text: &'a str) -> Self {
        objects.clear();
        Self { objects, text, target: Target::Row }
    }

    fn skipped(&mut self) -> Skipped<'_> {
        Skipped { objects: &mut *self.objects, text: self.text }
    }
}

impl<'de> DeserializeSeed<'de> for Value<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Value<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.objects.take(self.target, Cell::Null, "null");
        Ok(())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.objects.take(self.target, Cell::Bool(value), "a boolean");
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.objects.take_number(self.target, self.text, Cell::Int(value), "a number");
        Ok(())
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        match i64::try_from(value) {
            Ok(value) => self.visit_i64(value),
            Err(_) => self.visit_f64(value as f64),
        }
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        let is = "a number with a fraction or beyond 64 bits";
        self.objects.take_number(self.target, self.text, Cell::Float(value), is);
        Ok(())
    }

    fn visit_str<E>(self, value: &str) -> Result<(), E> {
        let cell = self.objects.keep(value);
        self.objects.take(self.target, cell, "a text");
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        let start = self.objects.items.len();
        match self.target {
            Target::Column(place) if self.objects.takes[place].list => {
                let (text, target) = (self.text, Target::ListOf(place));
                while list.next_element_seed(Value { objects: &mut *self.objects, text, target })?.is_some() {
                }
            }
            _ => while list.next_element_seed(self.skipped())?.is_some() {},
        }
        let end = self.objects.items.len();
        self.objects.take(self.target, Cell::List(start..end), "a list");
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<(), A::Error> {
        if self.target != Target::Row {
            while members.next_key::<IgnoredAny>()?.is_some() {
                members.next_value_seed(self.skipped())?;
            }
            self.objects.refuse_object(self.target);
            return Ok(());
        }
        while let Some(column) = members.next_key_seed(Key(&self.objects.places))? {
            match column {
                None => members.next_value_seed(self.skipped())?,
                Some(place) => {
                    let known = self.objects.problem.is_some();
                    let (text, target) = (self.text, Target::Column(place));
                    members.next_value_seed(Value { objects: &mut *self.objects, text, target })?;
                    if !known {
                        self.objects.name_column(place);
                    }
                }
            }
        }
        Ok(())
    }
}

impl Objects {
    fn refuse_object(&mut self, target: Target) {
        let (Target::Column(place) | Target::ListOf(place)) = target else { return };
        let named = &self.takes[place].named;
        if self.problem.is_none() {
            self.problem = Some(format!("an object where type {named} is expected"));
        }
    }

    /// A problem that has just arisen is this column's.
    fn name_column(&mut self, place: usize) {
        if let Some(problem) = self.problem.take() {
            let name = self.places.iter().find(|(_, at)| **at == place).map_or("", |(name, _)| name);
            self.problem = Some(format!("column `{name}`: {problem}"));
        }
    }
}

/// Passes a value over, though not the numbers in it where they are counted.
struct Skipped<'a> {
    objects: &'a mut Objects,
    text: &'a str,
}

impl Skipped<'_> {
    fn again(&mut self) -> Skipped<'_> {
        Skipped { objects: &mut *self.objects, text: self.text }
    }
}

impl<'de> DeserializeSeed<'de> for Skipped<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.objects.exact {
            deserializer.deserialize_any(self)
        } else {
            deserializer.deserialize_ignored_any(IgnoredAny).map(|IgnoredAny| ())
        }
    }
}

impl<'de> Visitor<'de> for Skipped<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        self.objects.next_number(self.text);
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        self.objects.next_number(self.text);
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        self.objects.next_number(self.text);
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(self.again())?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<(), A::Error> {
        while members.next_key::<IgnoredAny>()?.is_some() {
            members.next_value_seed(self.again())?;
        }
        Ok(())
    }
}

/// Reads a member's name as the column it is, if it is one.
struct Key<'a>(&'a HashMap<String, usize>);

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<usize>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a member's name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Option<usize>, E> {
        Ok(self.0.get(name).copied())
    }
}

/// Reads a whole document.
struct Document<'a> {
    objects: &'a mut Objects,
    text: &'a str,
    columns: &'a mut Columns,
    unfit: &'a mut Vec<Unfit>,
}

impl Document<'_> {
    fn append(&mut self, element: Option<usize>) {
        if let Err(problem) = self.objects.append(1, self.columns) {
            let why = element.map_or(problem.clone(), |element| format!("element {element}: {problem}"));
            self.unfit.push(Unfit { line: 1, why });
        }
    }
}

impl<'de> DeserializeSeed<'de> for Document<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Document<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or a list of objects")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, members: A) -> Result<(), A::Error> {
        Value::object(self.objects, self.text).visit_map(members)?;
        self.append(None);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        let mut element = 0;
        while list.next_element_seed(Value::object(self.objects, self.text))?.is_some() {
            element += 1;
            self.append(Some(element));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn an_exponent_moves_the_point() {
        for (written, wanted) in [
            ("12.50", "12.50"),
            ("1.5e2", "150"),
            ("-1.5E+1", "-15"),
            ("1.25e1", "12.5"),
            ("-12.5e-3", "-0.0125"),
            ("0.00125e3", "1.25"),
            ("0.5e0", "0.5"),
            ("5e-1", "0.5"),
            ("0e999999999999999999999", "0"),
            ("0.000e5", "0"),
            ("1e-999999999", "0"),
            ("123456789012345678.1234e-2", "1234567890123456.781234"),
        ] {
            assert_eq!(plain(written), wanted, "{written}");
        }
    }
}
