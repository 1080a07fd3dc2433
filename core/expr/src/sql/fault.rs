//! `DataFusion`'s and arrow's errors in the words of a job file, with the place of the offending token.

use datafusion_common::DataFusionError;
use datafusion_common::arrow::datatypes::{DataType, TimeUnit};
use datafusion_common::arrow::error::ArrowError;
use datafusion_sql::sqlparser::parser::ParserError;
use tuplane_core::fault::{At, Fault};
use tuplane_core::job::Text;

/// Characters of a row's value that a message repeats.
const MOST_SHOWN: usize = 40;

/// The fault of an expression that `DataFusion` refused.
pub(crate) fn of(text: &Text, error: &DataFusionError) -> Fault {
    let message = plain_message(error);
    let (message, at) = match location(&message) {
        Some((start, line, column)) => (message[..start].to_owned(), place(text, line, column, 1)),
        None => (message, text.at),
    };
    let fault = Fault::new(at, format!("`{}`: {}", text.value.trim(), lower_first(&message)));
    if needs_numbers(&text.value, &message) {
        return fault.help("a text becomes a number by a cast: cast(x as double)");
    }
    fault
}

/// A function of numbers was given a text.
fn needs_numbers(wrote: &str, message: &str) -> bool {
    const OF_NUMBERS: [&str; 6] = ["sum(", "avg(", "mean(", "stddev", "var", "median("];
    let wrote = wrote.to_lowercase();
    (message.contains("text") || message.contains("String"))
        && OF_NUMBERS.iter().any(|name| wrote.contains(name))
}

/// An error's own sentence, without `DataFusion`'s prefixes and advice.
pub(crate) fn plain_message(error: &DataFusionError) -> String {
    let message = match error.find_root() {
        DataFusionError::SQL(parser, _) => match parser.as_ref() {
            ParserError::TokenizerError(message) | ParserError::ParserError(message) => message.clone(),
            ParserError::RecursionLimitExceeded => "the expression is nested too deeply".to_owned(),
        },
        DataFusionError::ArrowError(arrow, _) => arrow_message(arrow),
        other => other.message().into_owned(),
    };
    let mut message = message.as_str();
    for prefix in [
        "Error during planning: ",
        "Execution error: ",
        "Internal error: ",
        "Arrow error: ",
        "This feature is not implemented: ",
        "type_coercion\ncaused by\n",
        "sql parser error: ",
    ] {
        message = message.strip_prefix(prefix).unwrap_or(message);
    }
    if let Some(cast) = refused_cast(message) {
        return cast;
    }
    if let Some(call) = refused_call(message) {
        return call;
    }
    let message = message.split("\n\n").next().unwrap_or(message).replace('\n', " ");
    let message = message.split(" This issue was likely caused by").next().unwrap_or(&message);
    in_sql_words(message).trim_end_matches('.').to_owned()
}

/// "Cannot cast string 'x' to value of Int32 type": the value is somebody's own text, however long, and no
/// word of it is a type.
fn refused_cast(message: &str) -> Option<String> {
    let rest = message.strip_prefix("Cannot cast string '")?.strip_suffix(" type")?;
    let (value, kind) = rest.rsplit_once("' to value of ")?;
    let value = value.replace(['\n', '\r'], " ");
    let shown = match value.char_indices().nth(MOST_SHOWN) {
        Some((end, _)) => format!("{}…", &value[..end]),
        None => value,
    };
    Some(format!("cannot cast '{shown}' to {}", in_sql_words(kind)))
}

/// "Failed to coerce arguments ... No function matches ... 'upper(Int64)'": only the call matters. Of a
/// list of signatures that do not match, only the first matters.
fn refused_call(message: &str) -> Option<String> {
    if let Some((_, errors)) = message.split_once("failed to match any signature, errors: ") {
        let first = errors.split(".,").next().unwrap_or(errors);
        let first = first.trim_start_matches("Error during planning: ");
        return Some(in_sql_words(first.split(" (DataType").next().unwrap_or(first)));
    }
    let (_, rest) = message.split_once("No function matches the given name and argument types '")?;
    let (call, _) = rest.split_once('\'')?;
    let (name, types) = call.split_once('(')?;
    Some(format!("`{name}` cannot be called with ({}", in_sql_words(types)))
}

fn arrow_message(error: &ArrowError) -> String {
    match error {
        ArrowError::DivideByZero => "division by zero".to_owned(),
        ArrowError::CastError(message)
        | ArrowError::ComputeError(message)
        | ArrowError::ParseError(message)
        | ArrowError::ArithmeticOverflow(message)
        | ArrowError::InvalidArgumentError(message) => message.clone(),
        other => other.to_string(),
    }
}

/// A type as a job file writes it.
pub fn sql_name(data_type: &DataType) -> String {
    match data_type {
        DataType::List(item) => format!("{}[]", sql_name(item.data_type())),
        DataType::Timestamp(TimeUnit::Nanosecond, None) => "timestamp".to_owned(),
        DataType::Timestamp(TimeUnit::Microsecond, None) => "timestamp(6)".to_owned(),
        DataType::Timestamp(TimeUnit::Millisecond, None) => "timestamp(3)".to_owned(),
        DataType::Timestamp(TimeUnit::Second, None) => "timestamp(0)".to_owned(),
        DataType::Time32(_) | DataType::Time64(_) => "time".to_owned(),
        DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale) => {
            format!("decimal({precision}, {scale})")
        }
        other => in_sql_words(&other.to_string()),
    }
}

/// Replaces arrow's names of types by SQL's.
pub(crate) fn in_sql_words(message: &str) -> String {
    let mut out = String::with_capacity(message.len());
    let mut rest = message;
    while !rest.is_empty() {
        let word = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        out.push_str(match &rest[..word] {
            "Utf8" | "LargeUtf8" | "Utf8View" => "text",
            "Int8" => "tinyint",
            "Int16" => "smallint",
            "Int32" => "int",
            "Int64" => "bigint",
            "Float32" => "real",
            "Float64" => "double",
            "Boolean" => "boolean",
            "Date32" | "Date64" => "date",
            "Binary" => "binary",
            "Timestamp" => "timestamp",
            "Decimal128" | "Decimal256" => "decimal",
            other => other,
        });
        let next = rest[word..].chars().next().map_or(0, char::len_utf8);
        out.push_str(&rest[word..word + next]);
        rest = &rest[word + next..];
    }
    out
}

/// Where " at Line: 1, Column: 5" starts in a parser's message, and what it says.
fn location(message: &str) -> Option<(usize, u64, u64)> {
    let start = message.rfind(" at Line: ")?;
    let (line, column) = message[start + " at Line: ".len()..].split_once(", Column: ")?;
    let digits = column.find(|c: char| !c.is_ascii_digit()).unwrap_or(column.len());
    Some((start, line.parse().ok()?, column[..digits].parse().ok()?))
}

/// The place of a token inside an expression. Only texts that stand on one line are followed into;
/// others keep the place of the whole.
pub(super) fn place(text: &Text, line: u64, column: u64, len: usize) -> At {
    let at = text.at;
    // What the span has beyond the text are its quotes, unless something was escaped.
    let quotes = match (at.len as usize).checked_sub(text.value.len()) {
        Some(0) => 0,
        Some(2) => 1,
        Some(6) => 3,
        _ => return at,
    };
    if at.line == 0 || line != 1 || column == 0 || text.value.contains(['\n', '\\', '"']) && quotes == 1 {
        return at;
    }
    let before = column as usize - 1;
    let Some(offset) = text.value.char_indices().map(|(i, _)| i).chain([text.value.len()]).nth(before) else {
        return at;
    };
    At {
        line: at.line,
        column: at.column + quotes + before as u32,
        offset: at.offset + quotes + offset as u32,
        len: len.clamp(1, (text.value.len() - offset).max(1)) as u32,
    }
}

fn lower_first(message: &str) -> String {
    let mut chars = message.chars();
    match (chars.next(), message.chars().nth(1)) {
        // An abbreviation or a name in capitals stays as it is.
        (Some(first), Some(second)) if first.is_ascii_uppercase() && second.is_ascii_lowercase() => {
            format!("{}{}", first.to_ascii_lowercase(), chars.as_str())
        }
        _ => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: &str, quotes: u32) -> Text {
        let len = value.len() as u32 + 2 * quotes;
        Text::new(value.to_owned(), At { line: 4, column: 10, offset: 100, len })
    }

    #[test]
    fn a_token_is_found_behind_the_quotes() {
        let at = place(&text("a + clent", 1), 1, 5, 5);
        assert_eq!(at, At { line: 4, column: 15, offset: 105, len: 5 });
        let at = place(&text("é + clent", 3), 1, 5, 5);
        assert_eq!(at, At { line: 4, column: 17, offset: 108, len: 5 });
    }

    #[test]
    fn escapes_and_line_breaks_keep_the_place_of_the_whole() {
        let escaped = text("\"a.b\" + c", 1);
        assert_eq!(place(&escaped, 1, 9, 1), escaped.at);
        let long = text("a +\n b", 3);
        assert_eq!(place(&long, 2, 2, 1), long.at);
        let nowhere = Text::nowhere("a + b".to_owned());
        assert_eq!(place(&nowhere, 1, 5, 1), At::default());
    }

    #[test]
    fn a_value_that_cannot_be_cast_is_repeated_as_it_is_and_not_at_any_length() {
        let said =
            |value: &str| refused_cast(&format!("Cannot cast string '{value}' to value of Int32 type"));
        assert_eq!(said("Utf8's\n").as_deref(), Some("cannot cast 'Utf8's ' to int"));
        assert_eq!(said(&"é".repeat(5000)), Some(format!("cannot cast '{}…' to int", "é".repeat(40))));
        assert_eq!(refused_cast("Cannot cast this"), None);
    }

    #[test]
    fn names_of_types_are_sql() {
        assert_eq!(in_sql_words("Utf8 + Boolean, MyUtf8"), "text + boolean, MyUtf8");
    }
}
