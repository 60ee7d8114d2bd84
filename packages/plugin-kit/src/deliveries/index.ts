// What plugins share that deliver results to addresses of users.
export { OwnerRounds, type OwnersPage } from './owner-rounds.js';
export { postWebhook } from './webhook.js';
