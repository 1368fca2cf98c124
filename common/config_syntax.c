/* common/config_syntax.c - see config_syntax.h. */
#include "common/config_syntax.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define MAX_OPEN 16u

/* --- which bracket is open? --------------------------------------------------------------------------------------- */

typedef struct bracket {
    char sign;
    uint32_t line, column;
} bracket;

typedef struct scan {
    bracket open[MAX_OPEN];
    size_t n_open;
    char quote;  /* in which the scan is; 0: in none */
    char before; /* the last character that was no blank; '\n': none in this line */
    bool spaced; /* a blank or the beginning of the line comes right before */
    bool in_comment;
} scan;

/* Where a value can begin, so that a bracket or a quote is one and not a letter of a text. */
static bool is_at_value(const scan *s)
{
    return s->before == '\n' || (strchr(":-?", s->before) != NULL && s->spaced) ||
           (s->n_open > 0 && strchr("[{,:", s->before) != NULL);
}

static void take(scan *s, char c, uint32_t line, uint32_t column)
{
    if (s->quote != 0) {
        s->quote = c == s->quote ? 0 : s->quote;
    } else if (c == '#' && s->spaced) {
        s->in_comment = true;
    } else if ((c == '"' || c == '\'') && is_at_value(s)) {
        s->quote = c;
    } else if ((c == '[' || c == '{') && is_at_value(s) && s->n_open < MAX_OPEN) {
        s->open[s->n_open++] = (bracket){c, line, column};
    } else if ((c == ']' || c == '}') && s->n_open > 0 && (s->open[s->n_open - 1].sign == '[') == (c == ']')) {
        s->n_open--;
    }
}

/* The innermost one that is open at a place, up to which the text is as a rule right; false: there is none. */
static bool find_open(const char *text, size_t n_bytes, uint32_t to_line, uint32_t to_column, bracket *found)
{
    scan s = {.before = '\n', .spaced = true};
    uint32_t line = 1, column = 1;
    for (size_t i = 0; i < n_bytes && (line < to_line || (line == to_line && column < to_column)); i++) {
        const char c = text[i];
        if (((unsigned char)c & 0xc0u) == 0x80u)
            continue; /* within a character */
        if (c == '\n') {
            s.in_comment = false;
            s.before = s.n_open > 0 ? s.before : '\n';
        } else if (!s.in_comment) {
            take(&s, c, line, column);
        }
        s.spaced = isspace((unsigned char)c) != 0;
        s.before = s.spaced || s.in_comment ? s.before : c;
        line += c == '\n';
        column = c == '\n' ? 1 : column + 1;
    }
    if (s.n_open == 0)
        return false;
    *found = s.open[s.n_open - 1];
    return true;
}

/* --- in words ----------------------------------------------------------------------------------------------------- */

typedef struct saying {
    const char *said; /* by libfyaml; a beginning of it */
    const char *words;
    bool open; /* about a bracket: words are what was found, or "" */
} saying;

#define INDENTATION                                                                                                    \
    "wrong indentation: the keys of one map, or the '-' of one list, stand below each other in one column"
#define NO_VALUE "found a comma, wanted a value before it"

static const saying sayings[] = {
    {"missing comma in flow", "", true},
    {"flow sequence without a closing bracket", "", true},
    {"flow mapping without a closing brace", "", true},
    {"wrongly indented flow", "", true},
    {"mismatched flow mapping end", "found '}', ", true},
    {"mismatched flow sequence end", "found ']', ", true},
    {"flow mapping with invalid extra closing brace", "found '}' without a '{' before it", false},
    {"flow sequence with invalid extra closing bracket", "found ']' without a '[' before it", false},
    {"flow sequence with invalid extra comma", NO_VALUE, false},
    {"flow sequence with invalid comma in the beginning", NO_VALUE, false},
    {"flow mapping with invalid extra comma", NO_VALUE, false},
    {"flow mapping with invalid comma in the beginning", NO_VALUE, false},
    {"did not find expected node content", "wanted a value here", false},
    {"invalid nested block mapping on the same line",
     "found a second ': ' in one line: a map begins on the next line, indented, or is written {key: value}; a text "
     "with "
     "': ' in it wants quotes",
     false},
    {"block sequence on the same line as a mapping key",
     "found a '-' behind a key: a list begins on the next line, or is written [this, that]", false},
    {"invalid multiline plain key",
     "found a text that goes on in the next line, wanted key: value, with a space behind the colon, and the keys of "
     "one "
     "map below each other in one column",
     false},
    {"could not find expected ':'", "found a line without ': ', wanted key: value", false},
    {"invalid value after mapping", "found what belongs to no key, wanted lines of key: value", false},
    {"invalid indentation in mapping", INDENTATION, false},
    {"wrong indendation in sequence", INDENTATION, false},
    {"wrong indentation in sequence", INDENTATION, false},
    {"invalid mapping in plain multiline", INDENTATION, false},
    {"wrongly indented double-quoted scalar", "found no \" at the end of a text that begins with one", false},
    {"wrongly indented single-quoted scalar", "found no ' at the end of a text that begins with one", false},
    {"double-quoted scalar without closing quote", "found no \" at the end of a text that begins with one", false},
    {"single-quoted scalar without closing quote", "found no ' at the end of a text that begins with one", false},
    {"invalid trailing content after", "found more behind a text in quotes, wanted the next line", false},
    {"plain scalar cannot start with", "found a text that begins with a sign of YAML: put it in quotes", false},
};

const char *sg_config_syntax_explain(const char *text, size_t n_bytes, const char *said, uint32_t line, uint32_t column,
                                     char out[SG_CONFIG_SYNTAX_BYTES])
{
    const saying *known = NULL;
    bracket open;
    for (size_t i = 0; i < sizeof sayings / sizeof *sayings && known == NULL; i++)
        if (strncmp(said, sayings[i].said, strlen(sayings[i].said)) == 0)
            known = &sayings[i];
    if (known != NULL && !known->open)
        snprintf(out, SG_CONFIG_SYNTAX_BYTES, "%s", known->words);
    else if (known != NULL && find_open(text, n_bytes, line, column, &open))
        snprintf(out, SG_CONFIG_SYNTAX_BYTES, "%swanted a comma or '%c': the '%c' in line %u, column %u is not closed",
                 known->words, open.sign == '[' ? ']' : '}', open.sign, open.line, open.column);
    else
        snprintf(out, SG_CONFIG_SYNTAX_BYTES, "%s", said);
    return out;
}
