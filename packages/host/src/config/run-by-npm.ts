/** Whether an npm script started this process. */
export const isRunByNpm = (): boolean => process.env.npm_lifecycle_event !== undefined;
