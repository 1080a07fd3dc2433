//! Bytes become text.

use std::borrow::Cow;

use tuplane_core::job::Encoding;

/// The text of a line; `Err` says why it has none.
pub(super) fn decode(bytes: &[u8], encoding: Encoding) -> Result<Cow<'_, str>, String> {
    match encoding {
        Encoding::Utf8 => std::str::from_utf8(bytes).map(Cow::Borrowed).map_err(|cause| {
            format!(
                "not UTF-8 at byte {} of the line (`encoding = \"lossy\"` or `\"latin-1\"` reads it)",
                cause.valid_up_to() + 1
            )
        }),
        Encoding::Lossy => Ok(String::from_utf8_lossy(bytes)),
        Encoding::Latin1 => match std::str::from_utf8(bytes) {
            Ok(text) if text.is_ascii() => Ok(Cow::Borrowed(text)),
            _ => Ok(bytes.iter().map(|byte| char::from(*byte)).collect()),
        },
    }
}
