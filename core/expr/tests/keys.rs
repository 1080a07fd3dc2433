//! Keys: the fast paths agree with the canonical form, whatever the column's type.

use std::sync::Arc;

use proptest::prelude::*;
use tuplane_core::route::key::{KeyBuf, partition};
use tuplane_expr::arrow::array::{
    Array, ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float32Array, Int16Array, Int64Array,
    StringArray, TimestampMillisecondArray,
};
use tuplane_expr::{KeyExprs, partitions};

use crate::prelude::*;

fn by_hand(rows: usize, push: impl Fn(&mut KeyBuf, usize)) -> Vec<u16> {
    (0..rows)
        .map(|row| {
            let mut key = KeyBuf::default();
            push(&mut key, row);
            partition(key.hash(), 271)
        })
        .collect()
}

fn of(columns: &[ArrayRef]) -> Vec<u16> {
    partitions(columns, 271).unwrap().values().to_vec()
}

proptest! {
    #[test]
    fn text_and_integers_with_and_without_nulls(
        texts in prop::collection::vec(prop::option::of("[a-c]{0,3}"), 1..30),
        numbers in prop::collection::vec(prop::option::of(any::<i64>()), 30),
    ) {
        let n = texts.len();
        let numbers = &numbers[..n];
        let text: ArrayRef = Arc::new(texts.iter().map(Option::as_deref).collect::<StringArray>());
        let number: ArrayRef = Arc::new(numbers.iter().copied().collect::<Int64Array>());
        let push_text = |key: &mut KeyBuf, row: usize| match &texts[row] {
            Some(text) => key.push_text(text),
            None => key.push_null(),
        };
        let push_number = |key: &mut KeyBuf, row: usize| match numbers[row] {
            Some(number) => key.push_i64(number),
            None => key.push_null(),
        };
        prop_assert_eq!(of(&[Arc::clone(&text)]), by_hand(n, push_text));
        prop_assert_eq!(of(&[Arc::clone(&number)]), by_hand(n, push_number));
        prop_assert_eq!(of(&[text, number]), by_hand(n, |key, row| {
            push_text(key, row);
            push_number(key, row);
        }));
    }
}

#[test]
fn other_types_by_their_class() {
    let small: ArrayRef = Arc::new(Int16Array::from(vec![-7]));
    assert_eq!(of(&[small]), of(&[integers(&[-7])]));
    let truth: ArrayRef = Arc::new(BooleanArray::from(vec![true]));
    assert_eq!(of(&[truth]), of(&[integers(&[1])]));
    let float: ArrayRef = Arc::new(Float32Array::from(vec![0.5, -0.0]));
    assert_eq!(of(&[float]), of(&[floats(&[0.5, 0.0])]));
    let day: ArrayRef = Arc::new(Date32Array::from(vec![1]));
    let stamp: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![86_400_000]));
    assert_eq!(of(&[day]), of(&[stamp]));
    let decimal = |value: i128, scale: i8| -> ArrayRef {
        Arc::new(Decimal128Array::from(vec![value]).with_precision_and_scale(20, scale).unwrap())
    };
    assert_eq!(of(&[decimal(1250, 2)]), of(&[decimal(125, 1)]));
}

#[test]
fn key_columns_are_named() {
    let rows = batch(vec![("a", some_strings(&["X", "y"])), ("b", integers(&[1, 2]))]);
    let key =
        KeyExprs::compile(language(), &texts(&["lower(a) as l", "b", "b % 2"]), &rows.schema()).unwrap();
    let names: Vec<&str> = key.fields().iter().map(|f| f.name().as_str()).collect();
    assert_eq!(names, ["l", "b", "b % 2"]);
    let columns = key.eval(&rows).unwrap();
    assert_eq!(columns.len(), 3);
    assert_eq!(key.partitions(&rows, 271).unwrap().values().to_vec(), of(&columns));
    assert_eq!(columns[0].len(), 2);
}
