//! `docs/ui.md` says what the code says. With `TUPLANE_UPDATE_DOCS` set its tables are written anew.

use std::path::Path;

use crate::tui::command;
use crate::tui::model::Screen;
use crate::tui::model::columns::columns;

fn column_table(screen: Screen) -> String {
    let mut out = String::from("| column | what it says |\n| --- | --- |\n");
    for column in columns(screen) {
        let also = if column.also.is_empty() {
            String::new()
        } else {
            format!(" (in filters also `{}`)", column.also)
        };
        out.push_str(&format!("| `{}` | {}{also} |\n", column.name, column.doc));
    }
    out
}

/// The text with the part between two markers replaced.
fn with_part(text: &str, name: &str, part: &str) -> String {
    let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
    let (before, rest) = text.split_once(&begin).unwrap_or_else(|| panic!("no {begin}"));
    let (_, after) = rest.split_once(&end).unwrap_or_else(|| panic!("no {end}"));
    format!("{before}{begin}{part}{end}{after}")
}

#[test]
fn the_tables_of_the_documentation_are_those_of_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/ui.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let mut fresh = with_part(&text, "keys", &command::table());
    fresh = with_part(&fresh, "keys of what is open", &command::open::table());
    for screen in Screen::ALL {
        fresh = with_part(&fresh, &format!("columns of {}", screen.name()), &column_table(screen));
    }
    if std::env::var_os("TUPLANE_UPDATE_DOCS").is_some() {
        std::fs::write(&path, &fresh).unwrap();
    }
    assert!(
        fresh == text || std::env::var_os("TUPLANE_UPDATE_DOCS").is_some(),
        "docs/ui.md is out of date; run this test with TUPLANE_UPDATE_DOCS=1"
    );
}
