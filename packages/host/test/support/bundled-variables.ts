/** What each bundled plugin needs in the environment to load, where it needs anything. */
export const bundledVariables: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  chain: { GATEWAY_URL: 'http://127.0.0.1:1' },
  claims: { CLAIMS_URL: 'https://claims.invalid', CRON_SECRET: 'a secret of the cron' },
  credits: { CREDITS_ENABLED: 'true', CREDITS_INITIAL_GRANT: '1000000000' },
  mcp: { MCP_SERVERS: '{}' },
  slack: { SLACK_SIGNING_SECRET: 'a signing secret', SLACK_BOT_TOKEN: 'xoxb-token' },
};
