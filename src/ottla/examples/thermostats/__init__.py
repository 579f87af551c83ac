"""The thermostats: temperature, humidity and air quality of rooms, and a controller that switches devices."""
