//! Writing into a part of the screen, cut at its borders on all sides.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use unicode_width::UnicodeWidthChar;

use crate::tui::glyph::Glyphs;
use crate::tui::text;
use crate::tui::theme::{Theme, Tone};

/// Writes into one part of the screen.
pub(crate) struct Pen<'a> {
    buffer: &'a mut Buffer,
    /// The part.
    pub(crate) area: Rect,
    /// Colours.
    pub(crate) theme: Theme,
    /// Marks.
    pub(crate) glyphs: &'static Glyphs,
}

impl<'a> Pen<'a> {
    /// A pen for a part; what of it lies outside of the screen is left out.
    pub(crate) fn new(buffer: &'a mut Buffer, area: Rect, theme: Theme, glyphs: &'static Glyphs) -> Self {
        let area = area.intersection(buffer.area);
        Self { buffer, area, theme, glyphs }
    }

    /// The same for another part.
    pub(crate) fn on(&mut self, area: Rect) -> Pen<'_> {
        Pen::new(self.buffer, area, self.theme, self.glyphs)
    }

    /// How a text of this meaning looks.
    pub(crate) fn style(&self, tone: Tone) -> Style {
        self.theme.style(tone)
    }

    /// Writes from a column and a line of the part on; returns the column behind it.
    pub(crate) fn put(&mut self, x: i32, y: i32, text: &str, style: Style) -> i32 {
        let mut column = x;
        let inside = (0..i32::from(self.area.height)).contains(&y);
        for c in text.chars() {
            let wide = c.width().unwrap_or(0) as i32;
            if wide == 0 {
                continue;
            }
            // Names may be in any script; a terminal without UTF-8 shows how long they are.
            if !self.glyphs.utf8 && !c.is_ascii() {
                column = self.put(column, y, &"?".repeat(wide as usize), style);
                continue;
            }
            if inside && column >= 0 && column + wide <= i32::from(self.area.width) {
                let at = (self.area.x + column as u16, self.area.y + y as u16);
                if let Some(cell) = self.buffer.cell_mut(at) {
                    cell.set_char(c).set_style(style);
                }
                // The second half of a wide character shows nothing of its own.
                for half in 1..wide as u16 {
                    if let Some(cell) = self.buffer.cell_mut((at.0 + half, at.1)) {
                        cell.reset();
                        cell.set_symbol("").set_style(style);
                    }
                }
            }
            column += wide;
        }
        column
    }

    /// Writes a text cut to what is left of the line.
    pub(crate) fn line(&mut self, x: i32, y: i32, text: &str, style: Style) -> i32 {
        let room = (i32::from(self.area.width) - x).max(0) as usize;
        let cut = text::fit(text, room, self.glyphs);
        self.put(x, y, &cut, style)
    }

    /// What stands at a place of the part.
    pub(crate) fn at(&self, x: i32, y: i32) -> Option<&str> {
        if !(0..i32::from(self.area.width)).contains(&x) || !(0..i32::from(self.area.height)).contains(&y) {
            return None;
        }
        self.buffer.cell((self.area.x + x as u16, self.area.y + y as u16)).map(ratatui::buffer::Cell::symbol)
    }

    /// Empties the part.
    pub(crate) fn clear(&mut self) {
        for y in self.area.top()..self.area.bottom() {
            for x in self.area.left()..self.area.right() {
                if let Some(cell) = self.buffer.cell_mut((x, y)) {
                    cell.reset();
                }
            }
        }
    }

    /// Makes a whole line of the part look so.
    pub(crate) fn paint(&mut self, y: i32, style: Style) {
        if (0..i32::from(self.area.height)).contains(&y) {
            let line = Rect::new(self.area.x, self.area.y + y as u16, self.area.width, 1);
            self.buffer.set_style(line, style);
        }
    }
}
