/** Turns per second, beside the floor's. */
export const LEAST_RATE = 0.3;
/** What is added to the model's own time to the first token, beside what the floor adds. */
export const MOST_FIRST_TOKEN = 3;
/** The time of many streams at once, beside the model's own. */
export const MOST_STREAM_TIME = 1.3;
/** On the wire, a token. */
export const MOST_BYTES = 120;
