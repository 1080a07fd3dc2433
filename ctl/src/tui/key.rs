//! Keys, written as people write them: `j`, `<enter>`, `<c-c>`. Recordings and tests use this form.

use std::fmt;
use std::str::FromStr;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use serde::{Deserialize, Serialize};

/// A key with its modifiers. Shift is part of the character.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Key {
    /// The key.
    pub(crate) code: Code,
    /// With Control.
    pub(crate) ctrl: bool,
    /// With Alt.
    pub(crate) alt: bool,
}

/// A key without modifiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Code {
    /// A character.
    Char(char),
    /// One of [`NAMES`].
    Named(&'static str),
}

/// Keys that are no characters, by name.
const NAMES: [(&str, KeyCode); 15] = [
    ("enter", KeyCode::Enter),
    ("esc", KeyCode::Esc),
    ("tab", KeyCode::Tab),
    ("backtab", KeyCode::BackTab),
    ("backspace", KeyCode::Backspace),
    ("delete", KeyCode::Delete),
    ("up", KeyCode::Up),
    ("down", KeyCode::Down),
    ("left", KeyCode::Left),
    ("right", KeyCode::Right),
    ("home", KeyCode::Home),
    ("end", KeyCode::End),
    ("pageup", KeyCode::PageUp),
    ("pagedown", KeyCode::PageDown),
    ("null", KeyCode::Null),
];

impl Key {
    /// A terminal's key; `None` for a release, and for keys the UI knows nothing of. A key that is held
    /// down counts again each time it repeats.
    pub(crate) fn from_terminal(event: KeyEvent) -> Option<Self> {
        if event.kind == KeyEventKind::Release {
            return None;
        }
        let code = match event.code {
            KeyCode::Char(c) => Code::Char(c),
            other => Code::Named(NAMES.iter().find(|(_, code)| *code == other)?.0),
        };
        let has = |modifier| event.modifiers.contains(modifier);
        Some(Self { code, ctrl: has(KeyModifiers::CONTROL), alt: has(KeyModifiers::ALT) })
    }

    /// The character that typing it gives.
    pub(crate) fn typed(self) -> Option<char> {
        match self.code {
            Code::Char(c) if !self.ctrl && !self.alt => Some(c),
            _ => None,
        }
    }

    /// For people: `Enter`, `Ctrl-C`, `j`.
    pub(crate) fn shown(self) -> String {
        let code = match self.code {
            Code::Char(' ') => "Space".to_owned(),
            Code::Char(c) if self.ctrl => c.to_uppercase().collect(),
            Code::Char(c) => c.to_string(),
            Code::Named("pageup") => "PgUp".to_owned(),
            Code::Named("pagedown") => "PgDn".to_owned(),
            Code::Named("backtab") => "Shift-Tab".to_owned(),
            Code::Named(name) => {
                let mut letters = name.chars();
                let first = letters.next().map(char::to_uppercase).into_iter().flatten();
                first.chain(letters).collect()
            }
        };
        format!("{}{}{code}", if self.ctrl { "Ctrl-" } else { "" }, if self.alt { "Alt-" } else { "" })
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let modifiers = format!("{}{}", if self.ctrl { "c-" } else { "" }, if self.alt { "a-" } else { "" });
        match self.code {
            Code::Char('<') => write!(f, "<{modifiers}lt>"),
            Code::Char(' ') => write!(f, "<{modifiers}space>"),
            // It would end the name.
            Code::Char('>') if !modifiers.is_empty() => write!(f, "<{modifiers}gt>"),
            Code::Char(c) if modifiers.is_empty() => write!(f, "{c}"),
            Code::Char(c) => write!(f, "<{modifiers}{c}>"),
            Code::Named(name) => write!(f, "<{modifiers}{name}>"),
        }
    }
}

impl FromStr for Key {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut keys = parse(text)?;
        match (keys.pop(), keys.is_empty()) {
            (Some(key), true) => Ok(key),
            _ => Err(format!("`{text}` is not one key")),
        }
    }
}

impl TryFrom<String> for Key {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Key> for String {
    fn from(key: Key) -> Self {
        key.to_string()
    }
}

/// Keys one after the other: `/busy<enter>j<c-c>`.
pub(crate) fn parse(text: &str) -> Result<Vec<Key>, String> {
    let mut keys = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let Some((inside, after)) =
            rest.strip_prefix('<').filter(|rest| !rest.is_empty()).and_then(|rest| rest.split_once('>'))
        else {
            keys.push(Key { code: Code::Char(c), ctrl: false, alt: false });
            rest = &rest[c.len_utf8()..];
            continue;
        };
        keys.push(named(inside)?);
        rest = after;
    }
    Ok(keys)
}

fn named(text: &str) -> Result<Key, String> {
    let (mut name, mut ctrl, mut alt) = (text, false, false);
    loop {
        if let Some(rest) = name.strip_prefix("c-").filter(|rest| !rest.is_empty()) {
            (name, ctrl) = (rest, true);
        } else if let Some(rest) = name.strip_prefix("a-").filter(|rest| !rest.is_empty()) {
            (name, alt) = (rest, true);
        } else {
            break;
        }
    }
    let mut letters = name.chars();
    let code = match (letters.next(), letters.next()) {
        (Some(only), None) => Code::Char(only),
        _ if name == "space" => Code::Char(' '),
        _ if name == "lt" => Code::Char('<'),
        _ if name == "gt" => Code::Char('>'),
        _ => {
            let known = NAMES.iter().find(|(known, _)| *known == name);
            Code::Named(known.ok_or_else(|| format!("`<{text}>` is no key"))?.0)
        }
    };
    Ok(Key { code, ctrl, alt })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{any, prop_assert_eq, proptest};

    proptest! {
        #[test]
        fn every_key_is_read_as_it_is_written(c in any::<char>(), n in 0..NAMES.len(), named: bool, ctrl: bool, alt: bool) {
            let code = if named { Code::Named(NAMES[n].0) } else { Code::Char(c) };
            let key = Key { code, ctrl, alt };
            prop_assert_eq!(key.to_string().parse::<Key>(), Ok(key));
        }
    }

    #[test]
    fn signs_that_frame_a_name_are_named_themselves() {
        for c in "<>-ca ".chars() {
            for (ctrl, alt) in [(false, true), (true, false), (true, true)] {
                let key = Key { code: Code::Char(c), ctrl, alt };
                assert_eq!(key.to_string().parse::<Key>(), Ok(key), "{key}");
            }
        }
        assert_eq!("<a-gt>".parse::<Key>().unwrap().code, Code::Char('>'));
    }

    #[test]
    fn keys_are_read_as_they_are_written() {
        let text = "/a b<enter><c-c><lt>>é<pagedown>";
        let keys = parse(text).unwrap();
        let written: String = keys.iter().map(ToString::to_string).collect();
        assert_eq!(written, "/a<space>b<enter><c-c><lt>>é<pagedown>");
        assert_eq!(parse(&written).unwrap(), keys);
        assert!(parse("<nokey>").is_err());
        assert_eq!("<c-c>".parse::<Key>().unwrap().shown(), "Ctrl-C");
        assert_eq!("<pageup>".parse::<Key>().unwrap().shown(), "PgUp");
    }

    #[test]
    fn releases_do_not_count_and_repeats_do() {
        let mut event = KeyEvent::new(KeyCode::Char('j'), KeyModifiers::SHIFT);
        assert_eq!(Key::from_terminal(event), Some("j".parse().unwrap()));
        event.kind = KeyEventKind::Repeat;
        assert!(Key::from_terminal(event).is_some());
        event.kind = KeyEventKind::Release;
        assert_eq!(Key::from_terminal(event), None);
    }
}
