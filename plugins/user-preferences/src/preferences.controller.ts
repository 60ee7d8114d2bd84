import { Controller, Get, Inject } from '@nestjs/common';
import { type Caller, CurrentCaller, Describe } from '@sibyl/plugin-kit';
import { UserPreferences } from '@sibyl/protocol';
import { PreferenceKeeper } from './preference-keeper.js';

@Controller('user-preferences')
export class PreferencesController {
  constructor(@Inject(PreferenceKeeper) private readonly preferences: PreferenceKeeper) {}

  @Get()
  @Describe({ summary: 'How the caller wants the oracle to behave', reply: UserPreferences })
  read(@CurrentCaller() { did: owner }: Caller): Promise<UserPreferences> {
    return this.preferences.read({ owner });
  }
}
