//! The caller's language, from the header Accept-Language.

use axum::http::HeaderValue;
use ekiden_core::reason::Language;

/// The language that the caller likes best among those that there are texts in; English if it says nothing.
pub(crate) fn of(wishes: Option<&HeaderValue>) -> Language {
    let Some(wishes) = wishes.and_then(|value| value.to_str().ok()) else {
        return Language::En;
    };
    let mut best = (Language::En, 0);
    for wish in wishes.split(',') {
        let mut parts = wish.split(';');
        let name = parts.next().unwrap_or_default().trim();
        let weight = parts.find_map(|part| part.trim().strip_prefix("q=")).map_or(1_000, thousandths);
        let language = match name.split('-').next().unwrap_or_default() {
            name if name.eq_ignore_ascii_case("ja") => Language::Ja,
            name if name.eq_ignore_ascii_case("en") || name == "*" => Language::En,
            _ => continue,
        };
        if weight > best.1 {
            best = (language, weight);
        }
    }
    best.0
}

fn thousandths(weight: &str) -> u32 {
    let weight = weight.trim().parse::<f32>().unwrap_or(0.0).clamp(0.0, 1.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 1000 by then")]
    let thousandths = (weight * 1_000.0) as u32;
    thousandths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_language_that_is_liked_best_wins() {
        for (wishes, language) in [
            ("ja", Language::Ja),
            ("ja-JP,ja;q=0.9,en;q=0.8", Language::Ja),
            ("en-US,en;q=0.9,ja;q=0.8", Language::En),
            ("de, ja;q=0.5", Language::Ja),
            ("ja;q=0", Language::En),
            ("ja;q=NaN", Language::En),
            (";;,,", Language::En),
        ] {
            assert_eq!(of(Some(&HeaderValue::from_static(wishes))), language, "{wishes}");
        }
        assert_eq!(of(None), Language::En);
    }
}
