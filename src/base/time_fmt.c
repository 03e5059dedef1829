/* Calendar arithmetic after Howard Hinnant, "chrono-compatible low-level date algorithms": eras of 400
 * years. */
#include "base/time_fmt.h"

enum { DAY_MS = 86400000 };

static const char month_names[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
static const char day_names[] = "ThuFriSatSunMonTueWed"; /* 1970-01-01 was a Thursday */

int64_t time_days_from_date(int year, int month, int day)
{
    int y = month <= 2 ? year - 1 : year;
    int era = (y >= 0 ? y : y - 399) / 400;
    int year_of_era = y - era * 400;
    int day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    int day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    return (int64_t)era * 146097 + day_of_era - 719468;
}

void time_date_from_days(int64_t days, int *out_year, int *out_month, int *out_day)
{
    days += 719468;
    int64_t era = (days >= 0 ? days : days - 146096) / 146097;
    int day_of_era = (int)(days - era * 146097);
    int year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    int day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    int shifted = (5 * day_of_year + 2) / 153;
    *out_day = day_of_year - (153 * shifted + 2) / 5 + 1;
    *out_month = shifted < 10 ? shifted + 3 : shifted - 9;
    *out_year = (int)(era * 400) + year_of_era + (*out_month <= 2);
}

static int days_in_month(int year, int month)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return month == 2 && leap ? 29 : days[month - 1];
}

static int64_t clamp_ms(int64_t ms)
{
    const int64_t least = INT64_C(-719528) * DAY_MS;    /* 0000-01-01 */
    const int64_t most = INT64_C(2932897) * DAY_MS - 1; /* the last of 9999-12-31 */
    return ms < least ? least : ms > most ? most : ms;
}

static void split(int64_t ms, int64_t *out_days, int *out_ms_of_day)
{
    *out_days = ms / DAY_MS - (ms % DAY_MS < 0);
    *out_ms_of_day = (int)(ms - *out_days * DAY_MS);
}

static char *put_two(char *at, unsigned value)
{
    at[0] = (char)('0' + value / 10);
    at[1] = (char)('0' + value % 10);
    return at + 2;
}

static char *put_four(char *at, unsigned value)
{
    return put_two(put_two(at, value / 100), value % 100);
}

void time_format_ms(int64_t wall_ms, char out[TIME_FMT_CHARS])
{
    int64_t days;
    int ms, year, month, day;
    split(clamp_ms(wall_ms), &days, &ms);
    time_date_from_days(days, &year, &month, &day);
    char *at = put_four(out, (unsigned)year);
    *at++ = '-';
    at = put_two(at, (unsigned)month);
    *at++ = '-';
    at = put_two(at, (unsigned)day);
    *at++ = 'T';
    at = put_two(at, (unsigned)ms / 3600000);
    *at++ = ':';
    at = put_two(at, (unsigned)ms / 60000 % 60);
    *at++ = ':';
    at = put_two(at, (unsigned)ms / 1000 % 60);
    *at++ = '.';
    *at++ = (char)('0' + ms % 1000 / 100);
    at = put_two(at, (unsigned)ms % 100);
    *at++ = 'Z';
    *at = '\0';
}

/* A reader that stays wrong once something did not match. */
struct scan {
    struct str s;
    bool bad;
};

static int scan_digits(struct scan *in, size_t digits)
{
    int value = 0;
    for (size_t i = 0; i < digits; i++) {
        if (in->bad || i >= in->s.n || in->s.p[i] < '0' || in->s.p[i] > '9') {
            in->bad = true;
            return 0;
        }
        value = value * 10 + (in->s.p[i] - '0');
    }
    in->s.p += digits;
    in->s.n -= digits;
    return value;
}

static char scan_one_of(struct scan *in, const char *allowed)
{
    if (in->bad || in->s.n == 0 || in->s.p[0] == '\0' || !strchr(allowed, in->s.p[0])) {
        in->bad = true;
        return '\0';
    }
    in->s.n--;
    return *in->s.p++;
}

static int scan_fraction_ms(struct scan *in)
{
    if (in->bad || in->s.n == 0 || in->s.p[0] != '.')
        return 0;
    in->s.p++;
    in->s.n--;
    int ms = 0;
    size_t digits = 0;
    while (digits < in->s.n && in->s.p[digits] >= '0' && in->s.p[digits] <= '9') {
        if (digits < 3)
            ms = ms * 10 + (in->s.p[digits] - '0');
        digits++;
    }
    if (digits == 0 || digits > 9)
        in->bad = true;
    for (size_t i = digits; i < 3; i++)
        ms *= 10;
    in->s.p += digits;
    in->s.n -= digits;
    return ms;
}

static bool date_ok(int year, int month, int day)
{
    return month >= 1 && month <= 12 && day >= 1 && day <= days_in_month(year, month);
}

static int64_t seconds_of_day(int hour, int minute, int second)
{
    return (int64_t)hour * 3600 + (int64_t)minute * 60 + second;
}

enum err time_parse_ms(struct str s, int64_t *out_wall_ms)
{
    struct scan in = {s, false};
    int year = scan_digits(&in, 4);
    scan_one_of(&in, "-");
    int month = scan_digits(&in, 2);
    scan_one_of(&in, "-");
    int day = scan_digits(&in, 2);
    scan_one_of(&in, "Tt");
    int hour = scan_digits(&in, 2);
    scan_one_of(&in, ":");
    int minute = scan_digits(&in, 2);
    scan_one_of(&in, ":");
    int second = scan_digits(&in, 2);
    int ms = scan_fraction_ms(&in);
    char zone = scan_one_of(&in, "Zz+-");
    int offset_minutes = 0;
    if (zone == '+' || zone == '-') {
        int offset_hour = scan_digits(&in, 2);
        scan_one_of(&in, ":");
        int offset_minute = scan_digits(&in, 2);
        if (offset_hour > 23 || offset_minute > 59)
            return ERR_SYNTAX;
        offset_minutes = (zone == '-' ? -1 : 1) * (offset_hour * 60 + offset_minute);
    }
    if (in.bad || in.s.n != 0 || !date_ok(year, month, day) || hour > 23 || minute > 59 || second > 59)
        return ERR_SYNTAX;
    int64_t seconds = time_days_from_date(year, month, day) * 86400 + seconds_of_day(hour, minute, second);
    *out_wall_ms = (seconds - (int64_t)offset_minutes * 60) * 1000 + ms;
    return ERR_OK;
}

void time_format_http(int64_t wall_ms, char out[TIME_HTTP_CHARS])
{
    int64_t days;
    int ms, year, month, day;
    split(clamp_ms(wall_ms), &days, &ms);
    time_date_from_days(days, &year, &month, &day);
    size_t weekday = (size_t)((days % 7 + 7) % 7);
    memcpy(out, day_names + 3 * weekday, 3);
    char *at = out + 3;
    *at++ = ',';
    *at++ = ' ';
    at = put_two(at, (unsigned)day);
    *at++ = ' ';
    memcpy(at, month_names + 3 * (size_t)(month - 1), 3);
    at += 3;
    *at++ = ' ';
    at = put_four(at, (unsigned)year);
    *at++ = ' ';
    at = put_two(at, (unsigned)ms / 3600000);
    *at++ = ':';
    at = put_two(at, (unsigned)ms / 60000 % 60);
    *at++ = ':';
    at = put_two(at, (unsigned)ms / 1000 % 60);
    memcpy(at, " GMT", 5);
}

static int month_from_name(struct scan *in)
{
    for (int m = 1; !in->bad && in->s.n >= 3 && m <= 12; m++) {
        if (memcmp(in->s.p, month_names + 3 * (size_t)(m - 1), 3) == 0) {
            in->s.p += 3;
            in->s.n -= 3;
            return m;
        }
    }
    in->bad = true;
    return 0;
}

enum err time_parse_http(struct str s, int64_t *out_wall_ms)
{
    if (s.n != TIME_HTTP_CHARS - 1 || !str_ends(s, STR(" GMT")))
        return ERR_SYNTAX;
    struct scan in = {str_of(s.p + 3, s.n - 7), false};
    scan_one_of(&in, ",");
    scan_one_of(&in, " ");
    int day = scan_digits(&in, 2);
    scan_one_of(&in, " ");
    int month = month_from_name(&in);
    scan_one_of(&in, " ");
    int year = scan_digits(&in, 4);
    scan_one_of(&in, " ");
    int hour = scan_digits(&in, 2);
    scan_one_of(&in, ":");
    int minute = scan_digits(&in, 2);
    scan_one_of(&in, ":");
    int second = scan_digits(&in, 2);
    if (in.bad || in.s.n != 0 || !date_ok(year, month, day) || hour > 23 || minute > 59 || second > 59)
        return ERR_SYNTAX;
    int64_t days = time_days_from_date(year, month, day);
    if (memcmp(s.p, day_names + 3 * (size_t)((days % 7 + 7) % 7), 3) != 0)
        return ERR_SYNTAX;
    *out_wall_ms = (days * 86400 + seconds_of_day(hour, minute, second)) * 1000;
    return ERR_OK;
}
