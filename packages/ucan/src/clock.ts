/** Unix time in whole seconds, injected so that every time rule can be tested. */
export type Clock = () => number;

export const systemClock: Clock = () => Math.floor(Date.now() / 1000);
