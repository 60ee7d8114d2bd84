import type { Middleware } from '@sibyl/plugin-kit';

const FRESH_MS = 10 * 60_000;
const MAX_PLACES = 1000;

/** Answers again for ten minutes what the service has answered once. */
export function recentWeather(clock: () => number = Date.now): Middleware {
  const known = new Map<string, { readonly answer: unknown; readonly until: number }>();
  return {
    name: 'recent-weather',
    // It only saves time: without it the service is asked again.
    onFailure: 'skip',
    wrapToolCall: async ({ name, input }, next) => {
      if (name !== 'get_weather') return next(input);
      const place = String(input.place).toLowerCase();
      const found = known.get(place);
      if (found && clock() < found.until) return found.answer;
      const answer = await next(input);
      if (known.size >= MAX_PLACES) known.clear();
      known.set(place, { answer, until: clock() + FRESH_MS });
      return answer;
    },
  };
}
