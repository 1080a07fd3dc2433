//! JSON objects become rows: every syntax error is found, members that are no column are passed over.

use std::collections::HashMap;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::super::columns::{Cell, Columns, Takes};

/// Reads objects into the cells of one row at a time.
pub(super) struct Objects {
    places: HashMap<String, usize>,
    takes: Vec<(Takes, String)>,
    cells: Vec<Cell>,
    texts: String,
    /// Why the object read last is no row, though it is valid JSON.
    problem: Option<String>,
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
        Self {
            places: fields.iter().enumerate().map(|(place, field)| (field.name().clone(), place)).collect(),
            takes: (0..fields.len())
                .map(|place| columns.takes(place))
                .map(|(takes, named)| (takes, named.to_owned()))
                .collect(),
            cells: vec![Cell::Null; fields.len()],
            texts: String::new(),
            problem: None,
        }
    }

    /// Appends the row of a line that holds one object.
    pub(super) fn push(&mut self, text: &str, line: u64, columns: &mut Columns) -> Result<(), String> {
        let mut json = serde_json::Deserializer::from_str(text);
        let read = Value::object(self).deserialize(&mut json).and_then(|()| json.end());
        read.map_err(|cause| in_line(&cause))?;
        self.append(line, columns)
    }

    /// Appends the rows of a document: one object, or a list of objects. A fault of syntax leaves none.
    pub(super) fn push_document(&mut self, text: &str, columns: &mut Columns) -> Vec<Unfit> {
        let mut unfit = Vec::new();
        let mut json = serde_json::Deserializer::from_str(text);
        let document = Document { objects: self, columns: &mut *columns, unfit: &mut unfit };
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
        columns.push_cells(line, &self.texts, &self.cells);
        Ok(())
    }

    fn clear(&mut self) {
        self.cells.fill(Cell::Null);
        self.texts.clear();
        self.problem = None;
    }

    /// Takes a value for a column, or for the row itself (`None`), where only an object will do.
    fn take(&mut self, column: Option<usize>, cell: Cell, is: &str) {
        let Some(place) = column else {
            self.problem = Some(format!("{is} where an object is expected"));
            return;
        };
        let (takes, named) = &self.takes[place];
        let fits = matches!(
            (takes, &cell),
            (_, Cell::Null)
                | (Takes::Bool, Cell::Bool(_))
                | (Takes::Int | Takes::Float, Cell::Int(_))
                | (Takes::Float, Cell::Float(_))
                | (Takes::Text, Cell::Text(_))
                | (Takes::Cast, Cell::Int(_) | Cell::Float(_) | Cell::Text(_))
        );
        if fits {
            self.cells[place] = cell;
        } else if self.problem.is_none() {
            self.problem = Some(format!("{is} where type {named} is expected"));
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

/// Reads one value: a row, or a column's.
struct Value<'a> {
    objects: &'a mut Objects,
    column: Option<usize>,
}

impl<'a> Value<'a> {
    fn object(objects: &'a mut Objects) -> Self {
        objects.clear();
        Self { objects, column: None }
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
        self.objects.take(self.column, Cell::Null, "null");
        Ok(())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.objects.take(self.column, Cell::Bool(value), "a boolean");
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.objects.take(self.column, Cell::Int(value), "a number");
        Ok(())
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        match i64::try_from(value) {
            Ok(value) => self.visit_i64(value),
            Err(_) => self.visit_f64(value as f64),
        }
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        self.objects.take(self.column, Cell::Float(value), "a number with a fraction or beyond 64 bits");
        Ok(())
    }

    fn visit_str<E>(self, value: &str) -> Result<(), E> {
        let start = self.objects.texts.len();
        self.objects.texts.push_str(value);
        let end = self.objects.texts.len();
        self.objects.take(self.column, Cell::Text(start..end), "a text");
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        self.refuse("a list");
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        if self.column.is_some() {
            while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            self.refuse("an object");
            return Ok(());
        }
        while let Some(column) = members.next_key_seed(Key(&self.objects.places))? {
            match column {
                None => {
                    members.next_value::<IgnoredAny>()?;
                }
                Some(place) => {
                    let known = self.objects.problem.is_some();
                    members.next_value_seed(Value { objects: &mut *self.objects, column: Some(place) })?;
                    if !known {
                        self.objects.name_column(place);
                    }
                }
            }
        }
        Ok(())
    }
}

impl Value<'_> {
    fn refuse(self, is: &str) {
        let wanted = match self.column {
            None => "an object".to_owned(),
            Some(place) => format!("type {}", self.objects.takes[place].1),
        };
        if self.objects.problem.is_none() {
            self.objects.problem = Some(format!("{is} where {wanted} is expected"));
        }
    }
}

impl Objects {
    /// A problem that has just arisen is this column's.
    fn name_column(&mut self, place: usize) {
        if let Some(problem) = self.problem.take() {
            let name = self.places.iter().find(|(_, at)| **at == place).map_or("", |(name, _)| name);
            self.problem = Some(format!("column `{name}`: {problem}"));
        }
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
        Value::object(self.objects).visit_map(members)?;
        self.append(None);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        let mut element = 0;
        while list.next_element_seed(Value::object(self.objects))?.is_some() {
            element += 1;
            self.append(Some(element));
        }
        Ok(())
    }
}
