import { quotient } from './quotient.js';

const DAYS_PER_ERA = 146_097;
const YEARS_PER_ERA = 400;
/** From 1 March of the year 0 to 1 January 1970. */
const DAYS_BEFORE_1970 = 719_468;

/** The date that is so many days after 1 January 1970. Years are counted from March, to end with the leap day. */
export function civilDate(days: number) {
  const shifted = days + DAYS_BEFORE_1970;
  const era = quotient(shifted, DAYS_PER_ERA);
  const dayOfEra = shifted - era * DAYS_PER_ERA;
  const leapDays =
    quotient(dayOfEra, 1460) - quotient(dayOfEra, 36_524) + quotient(dayOfEra, 146_096);
  const yearOfEra = quotient(dayOfEra - leapDays, 365);
  const dayOfYear = dayOfEra - 365 * yearOfEra - quotient(yearOfEra, 4) + quotient(yearOfEra, 100);
  const monthFromMarch = quotient(5 * dayOfYear + 2, 153);
  const month = monthFromMarch < 10 ? monthFromMarch + 3 : monthFromMarch - 9;
  return {
    year: era * YEARS_PER_ERA + yearOfEra + (month < 3 ? 1 : 0),
    month,
    day: dayOfYear - quotient(153 * monthFromMarch + 2, 5) + 1,
  };
}
