/** The variables that bundled plugins need to load. */
export const bundledVariables: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  chain: { GATEWAY_URL: 'http://127.0.0.1:1' },
  claims: { CLAIMS_URL: 'https://claims.invalid', CRON_SECRET: 'a secret of the cron' },
  credits: { CREDITS_ENABLED: 'true', CREDITS_INITIAL_GRANT: '1000000000' },
  mcp: { MCP_USER_SERVERS: 'true' },
  slack: { SLACK_SIGNING_SECRET: 'a signing secret', SLACK_BOT_TOKEN: 'xoxb-token' },
};
