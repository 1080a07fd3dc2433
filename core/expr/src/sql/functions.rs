//! The functions that expressions may call: `DataFusion`'s, and our own.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use datafusion_common::arrow::array::{Array, ArrayRef, AsArray, ListArray, StringArray};
use datafusion_common::arrow::buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use datafusion_common::arrow::datatypes::{DataType, Field};
use datafusion_common::utils::take_function_args;
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::planner::ExprPlanner;
use datafusion_expr::{
    AggregateUDF, ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// Every function by its lower-case name and aliases.
#[derive(Debug)]
pub(crate) struct Functions {
    pub(crate) scalar: BTreeMap<String, Arc<ScalarUDF>>,
    pub(crate) aggregate: BTreeMap<String, Arc<AggregateUDF>>,
    pub(crate) planners: Vec<Arc<dyn ExprPlanner>>,
}

/// The one set of functions of this build.
pub(crate) static FUNCTIONS: LazyLock<Functions> = LazyLock::new(Functions::new);

/// Functions about a query or a file of `DataFusion`'s own, which a stream has not.
const MEANINGLESS: [&str; 4] = ["input_file_name", "file_row_index", "version", "grouping"];

/// Functions whose result differs when rows are replayed.
pub(crate) const NOT_REPLAYABLE: [&str; 10] = [
    "now",
    "current_timestamp",
    "current_date",
    "today",
    "current_time",
    "localtime",
    "localtimestamp",
    "random",
    "rand",
    "uuid",
];

impl Functions {
    fn new() -> Self {
        let mut scalar = BTreeMap::new();
        let own = [ScalarUDF::from(Words::new()), ScalarUDF::from(AsciiLower::new())].map(Arc::new);
        let all = datafusion_functions::all_default_functions()
            .into_iter()
            .chain(datafusion_functions_nested::all_default_nested_functions())
            .chain(own);
        for function in all.filter(|f| !MEANINGLESS.contains(&f.name())) {
            for alias in function.aliases() {
                scalar.insert(alias.to_lowercase(), Arc::clone(&function));
            }
            scalar.insert(function.name().to_lowercase(), function);
        }
        let mut aggregate = BTreeMap::new();
        let all = datafusion_functions_aggregate::all_default_aggregate_functions();
        for function in all.into_iter().filter(|f| !MEANINGLESS.contains(&f.name())) {
            for alias in function.aliases() {
                aggregate.insert(alias.to_lowercase(), Arc::clone(&function));
            }
            aggregate.insert(function.name().to_lowercase(), function);
        }
        let planners: Vec<Arc<dyn ExprPlanner>> = vec![
            Arc::new(datafusion_functions::core::planner::CoreFunctionPlanner::default()),
            Arc::new(datafusion_functions::datetime::planner::DatetimeFunctionPlanner),
            Arc::new(datafusion_functions::unicode::planner::UnicodeFunctionPlanner),
            Arc::new(datafusion_functions_nested::planner::NestedFunctionPlanner),
            Arc::new(datafusion_functions_nested::planner::FieldAccessPlanner),
            Arc::new(datafusion_functions_aggregate::planner::AggregateFunctionPlanner),
        ];
        Self { scalar, aggregate, planners }
    }

    /// All names, for a suggestion.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.scalar.keys().chain(self.aggregate.keys()).map(String::as_str)
    }
}

/// `words(text)`: the words between ASCII white space, as a list.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Words {
    signature: Signature,
}

impl Words {
    fn new() -> Self {
        Self { signature: Signature::exact(vec![DataType::Utf8], Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for Words {
    fn name(&self) -> &'static str {
        "words"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(DataType::List(word_field()))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        on_text("words", args, |text| Ok(Arc::new(words(text)?)))
    }
}

/// `ascii_lower(text)`: A to Z become a to z, other characters stay.
#[derive(Debug, PartialEq, Eq, Hash)]
struct AsciiLower {
    signature: Signature,
}

impl AsciiLower {
    fn new() -> Self {
        Self { signature: Signature::exact(vec![DataType::Utf8], Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for AsciiLower {
    fn name(&self) -> &'static str {
        "ascii_lower"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        on_text("ascii_lower", args, |text| Ok(Arc::new(ascii_lower(text)?)))
    }
}

fn on_text(
    name: &str,
    args: ScalarFunctionArgs,
    apply: impl FnOnce(&StringArray) -> Result<ArrayRef>,
) -> Result<ColumnarValue> {
    let [argument] = take_function_args(name, args.args)?;
    match argument {
        ColumnarValue::Array(array) => Ok(ColumnarValue::Array(apply(array.as_string())?)),
        ColumnarValue::Scalar(scalar) => {
            let one = apply(scalar.to_array()?.as_string())?;
            Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&one, 0)?))
        }
    }
}

fn word_field() -> Arc<Field> {
    Arc::new(Field::new_list_field(DataType::Utf8, true))
}

fn words(text: &StringArray) -> Result<ListArray> {
    let mut bytes = Vec::with_capacity(text.value_data().len());
    let mut ends: Vec<i32> = vec![0];
    let mut lists: Vec<i32> = Vec::with_capacity(text.len() + 1);
    lists.push(0);
    for row in 0..text.len() {
        if text.is_valid(row) {
            for word in text.value(row).split_ascii_whitespace() {
                bytes.extend_from_slice(word.as_bytes());
                ends.push(bytes.len() as i32);
            }
        }
        lists.push(ends.len() as i32 - 1);
    }
    let ends = OffsetBuffer::new(ScalarBuffer::from(ends));
    let words = StringArray::try_new(ends, Buffer::from_vec(bytes), None)?;
    let lists = OffsetBuffer::new(ScalarBuffer::from(lists));
    Ok(ListArray::try_new(word_field(), lists, Arc::new(words), text.nulls().cloned())?)
}

fn ascii_lower(text: &StringArray) -> Result<StringArray> {
    let offsets = text.value_offsets();
    let (start, end) = (offsets[0], offsets[offsets.len() - 1]);
    let mut bytes = text.value_data()[start as usize..end as usize].to_vec();
    bytes.make_ascii_lowercase();
    let offsets: Vec<i32> = offsets.iter().map(|offset| offset - start).collect();
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    Ok(StringArray::try_new(offsets, Buffer::from_vec(bytes), text.nulls().cloned())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lists(words: &ListArray) -> Vec<Option<Vec<String>>> {
        words
            .iter()
            .map(|list| list.map(|l| l.as_string::<i32>().iter().flatten().map(str::to_owned).collect()))
            .collect()
    }

    /// A table of calls, by the headings of `DataFusion`'s own documentation.
    fn page() -> String {
        let mut sections: BTreeMap<&str, BTreeMap<&str, (String, Vec<String>)>> = BTreeMap::new();
        let scalar =
            FUNCTIONS.scalar.values().map(|f| (f.name(), f.documentation(), f.aliases(), "Own functions"));
        let aggregate = FUNCTIONS
            .aggregate
            .values()
            .map(|f| (f.name(), f.documentation(), f.aliases(), "Other aggregates"));
        for (name, about, aliases, other) in scalar.chain(aggregate) {
            let section = about.map_or(other, |about| match about.doc_section.label {
                // There are two of this name.
                "General Functions" | "Statistical Functions" => "Aggregates",
                label => label,
            });
            let call = about.map_or_else(|| format!("{name}(text)"), |about| about.syntax_example.clone());
            let call = call.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|");
            let call = match (name, call.find('(')) {
                // It gives these two the call of another function.
                ("bool_or" | "covar_pop", Some(open)) => format!("{name}{}", &call[open..]),
                _ => call,
            };
            sections.entry(section).or_default().insert(name, (call, aliases.to_vec()));
        }
        let mut page = String::from(
            "# Functions\n\n\
             All functions that expressions can call, with their arguments, and their other names. What each does stands in\n\
             DataFusion's documentation of SQL functions; `words` and `ascii_lower` are told in\n\
             [jobs.md](jobs.md#expressions). Operators, `case`, `cast`, `try_cast`, `between`, `in`, `like` and `is null` are\n\
             SQL's. Aggregates stand in `compute` alone. Those that are marked (*) are refused unless the job says\n\
             `deterministic = false`. A test compares this page with the code.\n",
        );
        for (section, functions) in sections {
            page.push_str(&format!("\n## {section}\n\n| call | other names |\n| --- | --- |\n"));
            for (name, (call, mut aliases)) in functions {
                aliases.sort();
                let mark = if NOT_REPLAYABLE.contains(&name) { " (*)" } else { "" };
                page.push_str(&format!("| `{call}`{mark} | {} |\n", aliases.join(", ")));
            }
        }
        page
    }

    #[test]
    fn the_page_of_functions_says_what_there_is() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/functions.md");
        if std::env::var_os("TUPLANE_UPDATE_DOCS").is_some() {
            std::fs::write(&path, page()).unwrap();
        }
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(text == page(), "docs/functions.md is out of date; run this test with TUPLANE_UPDATE_DOCS=1");
    }

    proptest! {
        #[test]
        fn words_are_std_words(
            rows in prop::collection::vec(prop::option::of("[ \\t\\n\\r\\x0b\\x0cabé\u{2003}]{0,12}"), 0..20),
            skip in 0usize..5,
        ) {
            let text: StringArray = rows.iter().map(Option::as_deref).collect();
            let skip = skip.min(rows.len());
            let sliced = text.slice(skip, rows.len() - skip);
            let expected: Vec<Option<Vec<String>>> = rows[skip..]
                .iter()
                .map(|row| row.as_ref().map(|r| r.split_ascii_whitespace().map(str::to_owned).collect()))
                .collect();
            prop_assert_eq!(lists(&words(&sliced).unwrap()), expected);
        }

        #[test]
        fn lower_is_std_lower(
            rows in prop::collection::vec(prop::option::of("[A-Za-zÉé ]{0,9}"), 0..20),
            skip in 0usize..5,
        ) {
            let text: StringArray = rows.iter().map(Option::as_deref).collect();
            let skip = skip.min(rows.len());
            let got = ascii_lower(&text.slice(skip, rows.len() - skip)).unwrap();
            let expected: StringArray =
                rows[skip..].iter().map(|r| r.as_ref().map(|r| r.to_ascii_lowercase())).collect();
            prop_assert_eq!(got, expected);
        }
    }
}
